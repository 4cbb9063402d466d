"""Wake-ups as values: what a commit tells each process, and the bytes of a notification (C15)."""

import pytest

from holdfast.core.leases import WorkerKey
from holdfast.storage.records import InstanceNumber
from holdfast.storage.wakeups import (
    EVERY_CHANGE,
    EVERYTHING,
    MOST_INSTANCES,
    MOST_NAMES,
    NOTHING,
    SOON_MS,
    Wakeup,
    Wakeups,
    WakeupTargets,
    decode_wakeup,
    encode_wakeup,
)

NOW_MS = 1_000_000


def numbers(*found: int) -> frozenset[InstanceNumber]:
    return frozenset(map(InstanceNumber, found))


@pytest.mark.parametrize(
    "wakeup",
    [NOTHING, EVERYTHING, Wakeup(queues=frozenset({"a", "b"}), instances=numbers(1), replies=True)],
)
def test_a_notification_carries_a_wake_up(wakeup: Wakeup) -> None:
    assert decode_wakeup(encode_wakeup(wakeup)) == wakeup


@pytest.mark.parametrize("data", [b"", b"!", b"7f3a", b'{"queues": 1}', b"\xff"])
def test_a_notification_without_a_wake_up_is_one_for_everything(data: bytes) -> None:
    """Releases before this one send the name of the sender, or one byte."""
    assert decode_wakeup(data) == EVERYTHING


def test_a_wake_up_with_too_many_names_is_one_for_everything() -> None:
    names = frozenset(str(each) for each in range(MOST_NAMES))
    assert Wakeup(queues=names).bounded().queues == names
    assert Wakeup(queues=names, owners=frozenset({"one more"})).bounded() == EVERYTHING
    assert Wakeup(instances=numbers(*range(MOST_INSTANCES))).bounded() != EVERYTHING
    assert Wakeup(instances=numbers(*range(MOST_INSTANCES + 1))).bounded() == EVERYTHING


def test_the_wake_ups_of_two_parts_of_a_group_are_merged() -> None:
    first = Wakeups(to_all=Wakeup(queues=frozenset({"a"})), to_each={"p": Wakeup(instances=numbers(1))})
    second = Wakeups(to_each={"p": Wakeup(instances=numbers(2)), "q": Wakeup(replies=True)})
    merged = first | second
    assert merged.to_all.queues == {"a"}
    assert merged.to_each == {"p": Wakeup(instances=numbers(1, 2)), "q": Wakeup(replies=True)}
    assert (first | Wakeups()) is first
    assert (Wakeups() | second) is second


def test_C15_a_merged_wake_up_names_a_claimant_only_if_both_do() -> None:
    """Otherwise instances of the one that names none would wait for the later poll of all workers."""
    flow = Wakeup(workflows=frozenset({"flow"}))
    for_a = Wakeup(workflows=flow.workflows, claimants=frozenset({"a"}))
    for_b = Wakeup(workflows=frozenset({"other"}), claimants=frozenset({"b"}))
    assert decode_wakeup(encode_wakeup(for_a)) == for_a
    assert (for_a | for_b).claimants == {"a", "b"}
    assert not (for_a | flow).claimants
    assert not (flow | for_a).claimants
    assert (for_a | Wakeup(queues=frozenset({"q"}))).claimants == {"a"}
    assert (NOTHING | for_a).claimants == {"a"}


def test_C15_a_merged_wake_up_with_too_many_claimants_names_none() -> None:
    workflows = frozenset({"flow"})
    most = Wakeup(workflows=workflows, claimants=frozenset(str(each) for each in range(MOST_NAMES)))
    assert len((most | most).claimants) == MOST_NAMES
    assert (most | Wakeup(workflows=workflows, claimants=frozenset({"one more"}))) == Wakeup(workflows=workflows)


def test_a_process_sends_itself_nothing() -> None:
    own = WorkerKey("mine")
    to_all = Wakeup(owners=frozenset({own, "theirs"}), queries=frozenset({own}))
    wakeups = Wakeups(to_all=to_all, to_each={"me": Wakeup(instances=numbers(1)), "other": Wakeup(replies=True)})
    others = wakeups.without("me", own)
    assert others.to_all == Wakeup(owners=frozenset({"theirs"}))
    assert others.to_each == {"other": Wakeup(replies=True)}
    assert not Wakeups(to_all=Wakeup(owners=frozenset({own})), to_each={"me": EVERYTHING}).without("me", own)


class TestResolve:
    """Rows are (number, workflow, owner, claimable at, whether it is over, watchers)."""

    def targets(self, *instances: int) -> WakeupTargets:
        targets = WakeupTargets()
        targets.instances.update(instances)
        return targets

    def test_an_open_instance_with_an_owner_concerns_the_owner_alone(self) -> None:
        found = self.targets(1).resolve([(1, "flow", "anna", NOW_MS, 0, "p")], NOW_MS)
        assert found == Wakeups(to_all=Wakeup(owners=frozenset({"anna"})))

    def test_a_claimable_instance_concerns_the_workers_with_its_code(self) -> None:
        found = self.targets(1).resolve([(1, "flow", None, NOW_MS + SOON_MS, 0, None)], NOW_MS)
        assert found == Wakeups(to_all=Wakeup(workflows=frozenset({"flow"})))

    @pytest.mark.parametrize("claimable_at_ms", [None, NOW_MS + SOON_MS + 1])
    def test_an_instance_that_is_not_claimable_soon_concerns_no_process(self, claimable_at_ms: int | None) -> None:
        assert not self.targets(1).resolve([(1, "flow", None, claimable_at_ms, 0, None)], NOW_MS)

    def test_an_end_concerns_the_watchers(self) -> None:
        found = self.targets(1, 2).resolve(
            [(1, "flow", None, None, 1, "p q"), (2, "flow", None, None, 1, f"{EVERY_CHANGE}p")], NOW_MS
        )
        assert found == Wakeups(to_each={"p": Wakeup(instances=numbers(1, 2)), "q": Wakeup(instances=numbers(1))})

    def test_news_of_an_open_instance_concern_those_that_watch_every_change(self) -> None:
        found = self.targets(1).resolve([(1, "flow", None, None, 0, f"p {EVERY_CHANGE}q")], NOW_MS)
        assert found == Wakeups(to_each={"q": Wakeup(instances=numbers(1))})

    def test_a_query_concerns_the_owner_or_the_workers_with_the_code(self) -> None:
        targets = WakeupTargets()
        targets.queries.update(("anna", "other"))
        assert not targets.is_empty()
        assert targets.numbers() == []
        found = targets.resolve([], NOW_MS)
        assert found == Wakeups(to_all=Wakeup(queries=frozenset({"anna", "other"})))

    def test_an_answer_concerns_the_process_that_asked(self) -> None:
        targets = WakeupTargets()
        assert targets.is_empty()
        targets.askers.add("p")
        assert not targets.is_empty()
        assert targets.resolve([], NOW_MS) == Wakeups(to_each={"p": Wakeup(replies=True)})
