"""The activity ledger, rule by rule. Numbers are those of the design document wherever it has one."""

import itertools

import pytest

from holdfast.core.ledger import (
    MAX_RESPONSES,
    SEED,
    Accepted,
    Leg1Verdict,
    Refused,
    conclude_leg1,
    enter_leg1,
    enter_leg2,
    exit_leg2,
    read_ledger,
)
from holdfast.errors import LedgerError


def test_L1_the_seed_is_three_nines_and_twelve_zeros() -> None:
    assert SEED == 999000000000000
    assert SEED < 2**53


def test_L2_entering_leg_1_takes_one_from_the_first_digit() -> None:
    assert enter_leg1(SEED) == (899000000000000, Leg1Verdict.FIRST_RUN)


def test_L3_concluding_leg_1_takes_one_from_the_second_digit() -> None:
    assert conclude_leg1(899000000000000) == 889000000000000


def test_L4_L5_L6_two_responses_walk_through_the_documented_values() -> None:
    value, verdict = enter_leg2(889000000000000)
    assert (value, verdict) == (889000001000000, Accepted(thread_index=0))
    value = exit_leg2(value, final=False)
    assert value == 889000001000001
    value, verdict = enter_leg2(value)
    assert (value, verdict) == (889000002000001, Accepted(thread_index=1))
    assert exit_leg2(value, final=True) == 888000002000002


def test_L6_a_final_exit_takes_one_less_than_a_trillion() -> None:
    assert exit_leg2(889000002000001, final=True) - 889000002000001 == -999999999999 == 1 - 10**12


def test_L7_an_entry_that_was_lost_before_it_concluded_is_run_again() -> None:
    assert enter_leg1(899000000000000) == (799000000000000, Leg1Verdict.RERUN)
    assert enter_leg1(799000000000000) == (699000000000000, Leg1Verdict.RERUN)


@pytest.mark.parametrize("concluded", [889000000000000, 789000000000000, 889000001000000, 888000002000002])
def test_L7_a_redelivery_after_the_conclusion_runs_nothing_and_keeps_no_decrement(concluded: int) -> None:
    value = concluded
    for _ in range(20):
        value, verdict = enter_leg1(value)
        assert (value, verdict) == (concluded, Leg1Verdict.ALREADY_CONCLUDED)
        assert not verdict.runs


@pytest.mark.parametrize("limit", range(1, 10))
def test_L8_an_entry_beyond_the_limit_is_exhausted_and_leaves_the_value(limit: int) -> None:
    value: int = SEED
    for entry in range(limit):
        value, verdict = enter_leg1(value, limit=limit)
        assert verdict is (Leg1Verdict.RERUN if entry else Leg1Verdict.FIRST_RUN)
        assert verdict.runs
    assert read_ledger(value).leg1_entries == limit
    assert enter_leg1(value, limit=limit) == (value, Leg1Verdict.EXHAUSTED)
    assert value >= 0


def test_L8_the_default_limit_is_five_and_nine_entries_bring_the_digit_to_zero() -> None:
    assert enter_leg1(499000000000000) == (499000000000000, Leg1Verdict.EXHAUSTED)
    value, _ = enter_leg1(199000000000000, limit=9)
    assert value == 99000000000000
    assert read_ledger(value).text == "099000000000000"


@pytest.mark.parametrize("limit", [0, -1, 10])
def test_L8_a_limit_that_one_digit_cannot_count_is_refused(limit: int) -> None:
    with pytest.raises(LedgerError, match="limit"):
        enter_leg1(SEED, limit=limit)


def test_L9_late_response_is_refused() -> None:
    documented_for_a_moment = 888000003000002
    assert enter_leg2(888000002000002) == (888000002000002, Refused.CLOSED)
    assert exit_leg2(documented_for_a_moment, final=False) == 888000003000003  # the digits alone would allow it


@pytest.mark.parametrize("value", [999000000000000, 899000000000000, 799000000000000])
def test_L10_a_response_before_leg_1_concluded_is_too_early_and_not_counted(value: int) -> None:
    assert enter_leg2(value) == (value, Refused.TOO_EARLY)


def test_L11_each_response_gets_the_number_of_those_before_it_as_its_thread_index() -> None:
    value: int = 889000000000000
    for thread_index in range(100):
        value, verdict = enter_leg2(value)
        assert verdict == Accepted(thread_index)


def test_L12_the_last_thread_is_999999_and_no_counter_carries_to_the_left() -> None:
    value, verdict = enter_leg2(889999998000000)
    assert (value, verdict) == (889999999000000, Accepted(MAX_RESPONSES - 1))
    assert enter_leg2(889999999000000) == (889999999000000, Refused.THREADS_EXHAUSTED)
    assert enter_leg2(888999999000002) == (888999999000002, Refused.CLOSED)
    assert exit_leg2(889999999999998, final=True) == 888999999999999


def test_a_response_that_entered_before_the_final_one_may_exit_after_it() -> None:
    value = exit_leg2(889000002000000, final=True)
    assert value == 888000002000001
    assert exit_leg2(value, final=False) == 888000002000002


def test_calls_that_no_correct_caller_makes_raise() -> None:
    with pytest.raises(LedgerError, match="concluded already"):
        conclude_leg1(889000000000000)
    with pytest.raises(LedgerError, match="before it was entered"):
        conclude_leg1(SEED)
    with pytest.raises(LedgerError, match="no response has entered"):
        exit_leg2(889000000000000, final=True)
    with pytest.raises(LedgerError, match="no response has entered"):
        exit_leg2(888000002000002, final=False)
    with pytest.raises(LedgerError, match="closed by an earlier final"):
        exit_leg2(888000002000001, final=True)


REACHABLE_TRIPLES = {
    *((d1, 9, 9) for d1 in range(10)),
    *((d1, 8, d3) for d1 in range(9) for d3 in (8, 9)),
}


def test_of_all_digit_triples_exactly_those_that_events_can_reach_are_read() -> None:
    for d1, d2, d3 in itertools.product(range(10), repeat=3):
        responses = 1_000_001 if d3 == 8 else 0
        value = (d1 * 100 + d2 * 10 + d3) * 10**12 + responses
        if (d1, d2, d3) not in REACHABLE_TRIPLES:
            for step in (read_ledger, enter_leg1, conclude_leg1, enter_leg2):
                with pytest.raises(LedgerError, match="is not a ledger"):
                    step(value)
            continue
        reading = read_ledger(value)
        assert reading.leg1_entries == 9 - d1
        assert reading.leg1_concluded == (d2 == 8)
        assert reading.leg2_closed == (d3 == 8)


@pytest.mark.parametrize(
    "value", [-1, 10**15, 2**63, 889000000000001, 889000001000002, 899000001000000, 888000001000000]
)
def test_numbers_that_no_sequence_of_events_reaches_are_no_ledger(value: int) -> None:
    with pytest.raises(LedgerError, match="is not a ledger"):
        read_ledger(value)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (999000000000000, "Scheduled, not claimed yet."),
        (899000000000000, "Claimed once; no executor has it yet."),
        (
            799000000000000,
            "Claimed 2 times, 1 of them lost before an executor had it; no executor has it yet.",
        ),
        (889000000000000, "An executor has it (leg 1 was entered once); no response so far."),
        (
            889000001000000,
            "An executor has it (leg 1 was entered once); one response came, not yet applied; leg 2 is open.",
        ),
        (
            888000002000002,
            "An executor had it (leg 1 was entered once); 2 responses came, all applied; a final one closed it.",
        ),
    ],
)
def test_a_reading_is_a_sentence_a_person_understands(value: int, sentence: str) -> None:
    assert read_ledger(value).sentence == sentence
