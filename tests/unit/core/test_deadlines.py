"""What becomes of an instance at its deadline: the table, and the way to FAILED."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.deadlines import AT_DEADLINE, DeadlineVerdict, at_deadline, failed_from, reason, why_ended
from holdfast.core.lifecycle import INSTANCE_FINAL, INSTANCE_TABLE, InstanceEvent, InstanceState, next_state
from holdfast.errors import IllegalTransition

GRACE_MS = 1_000
TABLE = {
    "REQUESTED": "END",
    "RUNNING": "ASK",
    "PAUSED": "HOLD",
    "BLOCKED": "END",
    "CANCEL_REQUESTED": "WAIT",
    "COMPLETED": "NOTHING",
    "FAILED": "NOTHING",
    "CANCELLED": "NOTHING",
    "TERMINATED": "NOTHING",
}


@pytest.mark.parametrize("state", TABLE)
def test_A9_at_the_deadline_every_state_has_its_verdict(state: str) -> None:
    assert at_deadline(state, grace_ms=GRACE_MS, is_grace_over=False) is DeadlineVerdict[TABLE[state]]


@given(state=st.sampled_from(list(InstanceState)), grace_ms=st.integers(0, 10), is_grace_over=st.booleans())
def test_A9_the_code_is_asked_where_a_cancel_would_ask_it_and_what_is_open_ends(
    state: InstanceState, grace_ms: int, is_grace_over: bool
) -> None:
    verdict = at_deadline(state, grace_ms=grace_ms, is_grace_over=is_grace_over)
    if state in INSTANCE_FINAL:
        assert verdict is DeadlineVerdict.NOTHING
    elif state is InstanceState.PAUSED:
        assert verdict is DeadlineVerdict.HOLD
    elif is_grace_over or grace_ms == 0:
        assert verdict is DeadlineVerdict.END
    elif InstanceEvent.REQUEST_CANCEL in INSTANCE_TABLE[state]:
        assert verdict is DeadlineVerdict.ASK
        assert at_deadline(next_state(state, InstanceEvent.REQUEST_CANCEL), grace_ms=grace_ms, is_grace_over=True) is (
            DeadlineVerdict.END
        )
    else:
        assert verdict is not DeadlineVerdict.ASK


def test_the_table_has_every_state() -> None:
    assert set(AT_DEADLINE) == set(InstanceState)


@pytest.mark.parametrize("state", list(InstanceState))
def test_A9_whatever_is_open_has_a_way_to_failed_and_what_is_final_has_none(state: InstanceState) -> None:
    if state in INSTANCE_FINAL:
        with pytest.raises(IllegalTransition):
            failed_from(state)
    else:
        assert failed_from(state) is InstanceState.FAILED


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (1, "1 ms"),
        (1_500, "1 s 500 ms"),
        (90_000, "1 min 30 s"),
        (2_592_000_000, "30 d"),
        (90_061_001, "1 d 1 h 1 min 1 s 1 ms"),
    ],
)
def test_the_reason_names_the_deadline(duration_ms: int, shown: str) -> None:
    assert reason(duration_ms) == f"its deadline of {shown} has passed"


def test_an_end_without_code_says_why() -> None:
    def said(state: str, *, is_grace_over: bool = False) -> str:
        return why_ended(state, limit_ms=1_000, grace_ms=0, is_grace_over=is_grace_over)

    assert said("REQUESTED").endswith("passed before it began")
    assert said("BLOCKED").endswith("passed while it was blocked")
    assert said("RUNNING").endswith("passed")
    assert said("CANCEL_REQUESTED", is_grace_over=True).endswith("within the grace of 0 s that followed")
