"""What counts in the metrics of a process, and what does not (M1)."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.core.history import ActivityCompleted, Payload
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.errors import StoreError
from holdfast.runtime.metrics import Histogram, WorkerMetrics
from holdfast.storage.members.attempts import Completion, OpenNextAttempt, Transition
from holdfast.storage.members.outcomes import Applied, EndedInstance, Failed, Rejected
from holdfast.storage.members.turns import InstanceEnd, Turn, TurnEffects
from holdfast.storage.records import AttemptKey, AttemptRecord, Fence, InstanceId, InstanceNumber
from holdfast.testing.conformance.bench import ANNA, new_attempt

NOW_MS = 10_000
RUNNING = AttemptState.RUNNING


ORDER: Any = SimpleNamespace(workflow="order")
"""A live instance, as far as metrics see it."""


def metrics() -> WorkerMetrics:
    return WorkerMetrics(lambda: 0.0, lambda: NOW_MS)


def ended(counted: WorkerMetrics) -> dict[tuple[str, str], int]:
    return {(name, state): n for name, counts in counted.activities.items() for state, n in counts.ended().items()}


def attempt(activity: int = 0, **more: Any) -> AttemptRecord:
    fields: dict[str, Any] = {
        "key": AttemptKey(InstanceNumber(1), 1, activity, 1),
        "name": "charge",
        "queue": "default",
        "state": RUNNING,
        "ledger": 0,
        "input": b"",
        "options": b"",
        "available_at_ms": 1_000,
        "scheduled_at_ms": 1_000,
        "started_at_ms": 4_000,
        "owner": ANNA,
    }
    return AttemptRecord(**(fields | more))


def completion(of: AttemptRecord, to_state: AttemptState = AttemptState.COMPLETED) -> Completion:
    return Completion(
        key=of.key,
        owner=ANNA,
        from_state=of.state,
        from_ledger=0,
        to_state=to_state,
        entered_ledger=0,
        applied_ledger=0,
        event=ActivityCompleted(time_ms=NOW_MS, activity=of.key.activity, result=Payload(msgspec.Raw(b"1"))),
        attempt=of,
    )


def turn(**more: Any) -> Turn:
    fields: dict[str, Any] = {"turn": 0, "execution": 1, "events": b"[]"}
    return Turn(number=InstanceNumber(1), owner=ANNA, fence=Fence(1), stamp_ms=0, **(fields | more))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, 1), ({"turn": 1}, 0), ({"execution": 2}, 0), ({"events": b""}, 0)],
)
def test_M1_an_instance_has_started_with_its_first_turn_and_with_no_other(
    fields: dict[str, Any], expected: int
) -> None:
    counted = metrics()
    counted.turn_committed(ORDER, turn(**fields), 1.0)
    assert counted.instances_started == ({"order": 1} if expected else {})


def test_M1_a_turn_counts_its_completions_its_end_and_the_wait_of_what_it_begins() -> None:
    counted = metrics()
    end = TurnEffects(close=InstanceEnd(state=InstanceState.FAILED, outcome=b""))
    begun = (new_attempt(1, owner=ANNA), new_attempt(2))
    counted.turn_committed(ORDER, turn(completions=(completion(attempt()),), attempts=begun, effects=end), 1.0)
    assert ended(counted) == {("charge", "COMPLETED"): 1}
    assert counted.activities["charge"].seconds.total == 6.0
    assert counted.instances_closed == {("order", "FAILED"): 1}
    assert sum(counted.activities["step"].wait_seconds().counts) == 1, "the other one waits for a worker"


def test_M1_a_group_counts_the_outcomes_that_were_applied() -> None:
    member = completion(attempt())
    counted = metrics()
    counted.committed([member], [Rejected(reason="stale")], 1.0)
    counted.committed([member], [Failed(error=StoreError("full"))], 1.0)
    assert ended(counted) == {}
    counted.committed([member], [Applied()], 1.0)
    assert ended(counted) == {("charge", "COMPLETED"): 1}
    assert sum(counted.commit_members.counts) == 3


def test_M1_a_turn_in_a_group_is_counted_by_its_own_commit_only() -> None:
    counted = metrics()
    counted.committed([turn(completions=(completion(attempt()),))], [Applied()], 1.0)
    assert ended(counted) == {}
    assert counted.instances_started == {}


def test_M1_a_rejected_turn_counts_the_completions_that_the_store_kept() -> None:
    counted = metrics()
    kept, stale = completion(attempt(0)), completion(attempt(1, name="pack"))
    counted.committed([turn(completions=(kept, stale))], [Rejected(reason="x", stale=(stale.key,))], 1.0)
    assert ended(counted) == {("charge", "COMPLETED"): 1}
    assert counted.instances_started == {}


def test_M1_an_attempt_whose_body_did_not_begin_counts_nothing() -> None:
    counted = metrics()
    preparing = attempt(state=AttemptState.PREPARING)
    counted.committed([completion(preparing, AttemptState.FAILED)], [Applied()], 1.0)
    moved = Transition(
        key=preparing.key,
        owner=ANNA,
        from_state=AttemptState.PREPARING,
        from_ledger=0,
        to_state=AttemptState.TIMED_OUT,
        to_ledger=0,
    )
    counted.committed([OpenNextAttempt(ended=moved, next=new_attempt(0), attempt=preparing)], [Applied()], 1.0)
    assert ended(counted) == {}


def test_M1_children_and_attempts_that_ended_inside_of_the_store_count() -> None:
    counted = metrics()
    child = EndedInstance(InstanceId("a"), InstanceNumber(2), "child", InstanceState.TERMINATED)
    lost = attempt(state=AttemptState.TIMED_OUT, closed_at_ms=5_000)
    queued = attempt(state=AttemptState.CANCELLED, started_at_ms=None)
    counted.committed([turn()], [Applied(ended=(child,), attempts_ended=(lost, queued))], 1.0)
    assert counted.instances_closed == {("child", "TERMINATED"): 1}
    assert ended(counted) == {("charge", "TIMED_OUT"): 1}
    assert counted.activities["charge"].seconds.total == 1.0


def test_a_histogram_counts_a_value_at_its_upper_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 7.5
