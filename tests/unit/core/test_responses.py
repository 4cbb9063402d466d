"""Responses are told apart by their ids (L9, L10, L11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger import Accepted, Refused, read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState
from holdfast.core.responses import Duplicate, ResponseId, take_response

FIRST, SECOND = ResponseId(activity=0, number=0), ResponseId(activity=0, number=1)
RUNNING = AttemptState.RUNNING


def test_L11_the_same_id_twice_changes_nothing_and_opens_no_second_thread() -> None:
    value, verdict = take_response(RUNNING, 889000000000000, FIRST, {})
    assert verdict == Accepted(thread_index=0)
    known = {FIRST: 0}
    assert take_response(RUNNING, value, FIRST, known) == (value, Duplicate(thread_index=0))
    assert take_response(RUNNING, value, SECOND, known) == (889000002000000, Accepted(thread_index=1))


@pytest.mark.parametrize("state", sorted(ATTEMPT_FINAL))
def test_L9_a_response_to_a_closed_attempt_is_refused_whatever_its_digits_say(state: AttemptState) -> None:
    for value in (999000000000000, 889000000000000, 889000001000000, 888000001000001):
        assert take_response(state, value, SECOND, {FIRST: 0}) == (value, Refused.CLOSED)
        assert take_response(str(state), value, SECOND, {}) == (value, Refused.CLOSED)


def test_L10_a_response_before_its_time_is_told_so() -> None:
    assert take_response("QUEUED", 899000000000000, FIRST, {}) == (899000000000000, Refused.TOO_EARLY)


@given(st.lists(st.integers(0, 9), max_size=60))
def test_L11_however_often_responses_are_resent_each_counts_once(numbers: list[int]) -> None:
    value: int = 889000000000000
    known: dict[ResponseId, int] = {}
    for number in numbers:
        response = ResponseId(activity=3, number=number)
        value, verdict = take_response(RUNNING, value, response, known)
        if isinstance(verdict, Accepted):
            known[response] = verdict.thread_index
        else:
            assert verdict == Duplicate(known[response])
    assert read_ledger(value).responses_entered == len(set(numbers))
    assert sorted(known.values()) == list(range(len(known)))
