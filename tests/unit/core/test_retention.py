"""The verdict on a family against a plain model of the rules (R31, R33, R34, R37)."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.retention import (
    FamilyMember,
    FamilyVerdict,
    decide_families,
    decide_family,
    ended_executions,
)

MEMBERS = st.tuples(
    st.sampled_from([*sorted(INSTANCE_FINAL) * 5, *InstanceState]),
    st.integers(0, 9),
    st.sampled_from([False] * 9 + [True]),
)


def member(
    root: int, number: int, state: InstanceState, ended_ms: int, *, is_held: bool, parent: str | None = None
) -> FamilyMember:
    closed_at_ms = ended_ms if state in INSTANCE_FINAL else None
    parents = None if parent is None else 0
    return FamilyMember(root, number, f"i{number}", "w", state, closed_at_ms, parents, parent, is_held)


@given(drawn=st.lists(MEMBERS, max_size=5), ended_by_ms=st.integers(0, 9) | st.none(), has_parent=st.booleans())
@example(drawn=[(InstanceState.COMPLETED, 1, False), (InstanceState.FAILED, 5, False)], ended_by_ms=3, has_parent=False)
def test_R31_a_family_is_deleted_exactly_when_every_member_may_go(
    drawn: Sequence[tuple[InstanceState, int, bool]], ended_by_ms: int | None, has_parent: bool
) -> None:
    parent = "above" if has_parent else None
    family = [
        member(1, number, state, ended_ms, is_held=held, parent=parent if number == 1 else "i1")
        for number, (state, ended_ms, held) in enumerate(drawn, 1)
    ]
    may_go = (
        bool(family)
        and not has_parent
        and all(state in INSTANCE_FINAL for state, _, _ in drawn)
        and not any(held for _, _, held in drawn)
        and (ended_by_ms is None or max(ended_ms for _, ended_ms, _ in drawn) <= ended_by_ms)
    )
    decision = decide_family(1, family, ended_by_ms)
    assert (decision.verdict is FamilyVerdict.DELETED) is may_go
    assert decision.instances == (len(family) if may_go else 0)
    assert (decision.verdict is FamilyVerdict.UNKNOWN) is (not family)


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(1, 6))
def test_R37_a_slice_has_whole_families_up_to_its_limit(sizes: list[int], limit: int) -> None:
    done = InstanceState.COMPLETED
    members = [
        member(10 * root, 10 * root + at, done, 0, is_held=False, parent="r" if at else None)
        for root, size in enumerate(sizes, 1)
        for at in range(size)
    ]
    roots = [10 * root for root in range(1, len(sizes) + 1)]
    decisions = decide_families(roots, members, ended_by_ms=None, limit=limit)
    assert [each.root for each in decisions] == roots
    deleted = [each for each in decisions if each.verdict is FamilyVerdict.DELETED]
    assert {each.verdict for each in decisions} <= {FamilyVerdict.DELETED, FamilyVerdict.LATER}
    assert [each.instances for each in deleted] == [sizes[each.root // 10 - 1] for each in deleted]
    total = sum(each.instances for each in deleted)
    assert total <= limit or [each.root for each in deleted] == roots[:1]
    assert bool(deleted) is bool(sizes), "the first family is never left for later"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6).map(sorted), st.integers(0, 20), st.sets(st.integers(1, 6)))
def test_R34_executions_go_up_to_the_last_one_that_ended_long_enough_ago(
    began_ms: list[int], ended_by_ms: int, unknown: set[int]
) -> None:
    current = len(began_ms)
    starts = {number: time for number, time in enumerate(began_ms, 1) if number not in unknown}
    ended = [number for number in range(1, current) if number + 1 in starts and starts[number + 1] <= ended_by_ms]
    assert ended_executions(starts, current, ended_by_ms) == max(ended, default=0) + 1
