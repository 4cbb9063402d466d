"""Pending responses by their digits (L4, L5, L12, L15): counted together, they end where one by one they would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger import MAX_RESPONSES, SEED, conclude_leg1, enter_leg1, enter_leg2, exit_leg2, read_ledger
from holdfast.core.streams import MAX_YIELDS, enter_pending, pass_pending, room_for_yields, values_delivered
from holdfast.errors import InvariantBroken

RUNNING = conclude_leg1(enter_leg1(SEED)[0])
COUNTS = st.lists(st.integers(1, 40), max_size=8)


@given(COUNTS)
def test_L4_responses_that_enter_together_count_as_one_by_one(counts: list[int]) -> None:
    together, singly = RUNNING, RUNNING
    for count in counts:
        together = enter_pending(together, count)
        for _ in range(count):
            singly = enter_leg2(singly)[0]
        assert together == singly
    assert read_ledger(together).unapplied_responses == sum(counts)


@given(COUNTS)
def test_L5_passing_is_entering_and_leaving(counts: list[int]) -> None:
    passed, singly = RUNNING, RUNNING
    for count in counts:
        passed = pass_pending(passed, count)
        singly = enter_pending(singly, count)
        for _ in range(count):
            singly = exit_leg2(singly, final=False)
        assert passed == singly
    digits = read_ledger(passed)
    assert (digits.responses_entered, digits.responses_exited) == (sum(counts), sum(counts))
    assert not digits.leg2_closed


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=8))
def test_L14_both_ways_mixed_leave_what_still_waits(steps: list[tuple[int, bool]]) -> None:
    """E - X is what went by the inbox, whatever rode with turns before and after it."""
    ledger, waiting = RUNNING, 0
    for count, with_turn in steps:
        ledger = pass_pending(ledger, count) if with_turn else enter_pending(ledger, count)
        waiting += 0 if with_turn else count
        assert read_ledger(ledger).unapplied_responses == waiting
    assert values_delivered(7, ledger) == 7 + sum(count for count, _ in steps)


@given(COUNTS)
def test_L15_the_final_response_closes_a_stream_of_any_length(counts: list[int]) -> None:
    ledger = RUNNING
    for count in counts:
        ledger = pass_pending(ledger, count)
    ended = read_ledger(exit_leg2(enter_leg2(ledger)[0], final=True))
    assert ended.leg2_closed
    assert ended.responses_entered == ended.responses_exited == sum(counts) + 1


@given(st.integers(0, MAX_YIELDS))
def test_L12_the_room_is_what_the_digits_can_count_less_the_last_response(delivered: int) -> None:
    ledger = enter_pending(RUNNING, delivered) if delivered else RUNNING
    room = room_for_yields(ledger)
    assert room == MAX_YIELDS - delivered
    with pytest.raises(InvariantBroken, match="no room"):
        enter_pending(ledger, room + 1)
    if room:
        full = enter_pending(ledger, room)
        assert room_for_yields(full) == 0
        assert read_ledger(full).responses_entered == MAX_RESPONSES - 1
        assert read_ledger(enter_leg2(full)[0]).responses_entered == MAX_RESPONSES, "the end of the attempt still fits"


@pytest.mark.parametrize("count", [0, -1])
def test_L4_a_message_has_at_least_one_value(count: int) -> None:
    with pytest.raises(InvariantBroken):
        enter_pending(RUNNING, count)


@pytest.mark.parametrize("ledger", [SEED, enter_leg1(SEED)[0], exit_leg2(enter_leg2(RUNNING)[0], final=True)])
def test_L9_L10_nothing_enters_before_an_executor_has_it_or_after_its_end(ledger: int) -> None:
    for enter in (enter_pending, pass_pending):
        with pytest.raises(InvariantBroken, match="takes no response"):
            enter(ledger, 1)
