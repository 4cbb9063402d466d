"""What a turn takes out of the inbox moves the digits of the attempts that sent it."""

from typing import Any

import msgspec
import pytest

from holdfast.core.history import ActivityFailed, ActivityYielded, Payload
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.turns.live_instance import exit_of
from holdfast.storage.members.attempts import Transition
from holdfast.storage.members.turns import AppliedValues
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceId, InstanceNumber

KEY = AttemptKey(InstanceNumber(1), 1, 4, 6)
NOTHING = Payload(msgspec.Raw(b"null"))


def record(state: AttemptState, ledger: int) -> AttemptRecord:
    return AttemptRecord(
        key=KEY,
        name="count",
        queue="default",
        state=state,
        ledger=ledger,
        input=b"{}",
        options=b"{}",
        available_at_ms=0,
        scheduled_at_ms=0,
        started_at_ms=0,
        expires_at_ms=None,
        heartbeat_at_ms=0,
        owner=None,
        instance_id=InstanceId("it"),
        workflow="story",
    )


def exit_of_failure(state: AttemptState, ledger: int) -> Any:
    event = ActivityFailed(time_ms=0, activity=KEY.activity, failure=NOTHING, attempt=KEY.attempt)
    return exit_of(event, {(KEY.activity, KEY.attempt): record(state, ledger)})


def test_L6_the_failure_of_a_body_leaves_as_its_final_response() -> None:
    answered = exit_of_failure(AttemptState.FAILED, 889_000007_000006)
    assert isinstance(answered, Transition)
    assert answered.to_ledger == 888_000007_000007


@pytest.mark.parametrize("ledger", [889_000007_000006, 889_000007_000007, 889_000000_000000])
def test_A8_a_time_out_is_no_response_also_while_values_are_unapplied(ledger: int) -> None:
    assert exit_of_failure(AttemptState.TIMED_OUT, ledger) is None


def test_L5_a_value_leaves_as_a_pending_response_whatever_became_of_its_attempt() -> None:
    event = ActivityYielded(time_ms=0, activity=KEY.activity, number=7, value=NOTHING, attempt=KEY.attempt)
    attempts = {(KEY.activity, KEY.attempt): record(AttemptState.TIMED_OUT, 889_000007_000006)}
    assert exit_of(event, attempts) == AppliedValues(key=KEY, count=1)
