"""Which outcomes write a span, and which do not (M4, M5)."""

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.support.spans import Traces

from holdfast.authoring.activity import current_activity
from holdfast.core.activity_options import ActivityOptions, decode_options, encode_options, options_of_next, with_trace
from holdfast.core.admission import EventVerdict
from holdfast.core.history import ActivityCompleted, CancelRequested, EventReceived, Payload
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.trace_context import TraceContext, attempt_span_id, execution_span_id
from holdfast.errors import StoreError
from holdfast.runtime.spans import DerivedIds, tracer_of
from holdfast.runtime.tracing import MOST_OPEN, Tracing, closed_by
from holdfast.storage.members.attempts import Completion, OpenNextAttempt, Transition
from holdfast.storage.members.instances import Terminate
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    Failed,
    Outcome,
    Rejected,
    TargetInstance,
    TerminatedInstance,
)
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import AttemptKey, AttemptRecord, Fence, InstanceId, InstanceNumber
from holdfast.testing.conformance.bench import ANNA, new_attempt

RUN = TraceContext(11, 22)
OPTIONS = with_trace(encode_options(ActivityOptions()), RUN.encode())
NOW_MS = 10_000


def tracing(traces: Traces) -> Tracing:
    store: Any = SimpleNamespace(now_ms=lambda: NOW_MS)
    return Tracing(tracer_of(traces.provider), store, clock=lambda: 0.0, wall_ns=lambda: NOW_MS * 1_000_000)


def attempt(activity: int = 0, **more: Any) -> AttemptRecord:
    fields: dict[str, Any] = {
        "key": AttemptKey(InstanceNumber(1), 1, activity, 1),
        "name": "charge",
        "queue": "default",
        "state": AttemptState.RUNNING,
        "ledger": 0,
        "input": b"",
        "options": OPTIONS,
        "available_at_ms": 1_000,
        "scheduled_at_ms": 1_000,
        "started_at_ms": 4_000,
        "owner": ANNA,
    }
    return AttemptRecord(**(fields | more))


def completion(of: AttemptRecord) -> Completion:
    return Completion(
        key=of.key,
        owner=ANNA,
        from_state=of.state,
        from_ledger=0,
        to_state=AttemptState.COMPLETED,
        entered_ledger=0,
        applied_ledger=0,
        event=ActivityCompleted(time_ms=5_000, activity=of.key.activity, result=Payload()),
        attempt=of,
    )


def next_attempt(of: AttemptRecord) -> OpenNextAttempt:
    moved = Transition(
        key=of.key, owner=ANNA, from_state=of.state, from_ledger=0, to_state=AttemptState.FAILED, to_ledger=0
    )
    return OpenNextAttempt(ended=moved, next=new_attempt(0), attempt=of)


@pytest.mark.parametrize("outcome", [Rejected(reason="stale"), Failed(error=StoreError("full"))])
@pytest.mark.parametrize("make", [completion, next_attempt])
def test_M5_an_end_that_was_not_applied_writes_nothing(make: Any, outcome: Outcome) -> None:
    traces = Traces()
    tracing(traces).committed([make(attempt())], [outcome], 0.0)
    assert traces.names == {}


def test_M5_the_end_of_an_attempt_that_ran_elsewhere_is_written_from_its_row() -> None:
    traces = Traces()
    tracing(traces).committed([completion(attempt())], [Applied()], 0.0)
    span = traces.only("charge")
    assert (span.trace, span.parent, span.id) == (11, 22, attempt_span_id(22, 0, 1))
    assert (span.began, span.ended) == (4_000_000_000, 5_000_000_000)


def test_M5_a_rejected_turn_writes_the_completions_that_the_store_kept() -> None:
    traces = Traces()
    kept, stale = completion(attempt(0)), completion(attempt(1, name="pack"))
    turn = Turn(
        number=InstanceNumber(1), owner=ANNA, fence=Fence(1), stamp_ms=0, turn=1, execution=1, completions=(kept, stale)
    )
    tracing(traces).committed([turn], [Rejected(reason="x", stale=(stale.key,))], 0.0)
    assert traces.names == {"charge": 1}


def test_M5_a_committed_turn_is_written_when_its_outcome_is_known_only() -> None:
    traces = Traces()
    turn = Turn(
        number=InstanceNumber(1),
        owner=ANNA,
        fence=Fence(1),
        stamp_ms=0,
        turn=1,
        execution=1,
        completions=(completion(attempt()),),
    )
    tracing(traces).committed([turn], [Applied()], 0.0)
    assert traces.names == {}


def test_M4_the_span_of_a_body_is_current_until_its_end_and_written_after_the_commit() -> None:
    traces = Traces()
    spans = tracing(traces)

    async def body() -> None:
        running: Any = SimpleNamespace(attempt=attempt())
        spans.set_current(running)
        assert current_activity.get() is running
        assert opentelemetry.trace.get_current_span().get_span_context().span_id == attempt_span_id(22, 0, 1)
        spans.set_current(None)
        assert not opentelemetry.trace.get_current_span().get_span_context().is_valid
        assert current_activity.get() is None

    asyncio.run(body())
    assert traces.names == {}
    spans.committed([completion(attempt())], [Applied()], 0.0)
    assert traces.names == {"charge": 1}
    assert spans._open == {}


def test_M5_attempts_that_never_end_here_are_limited_in_number() -> None:
    spans = tracing(Traces())

    async def begin() -> None:
        for number in range(MOST_OPEN + 10):
            running: Any = SimpleNamespace(attempt=attempt(number))
            spans.set_current(running)

    asyncio.run(begin())
    assert len(spans._open) == MOST_OPEN


@pytest.mark.parametrize("was_open", [True, False])
def test_M5_an_instance_that_had_ended_before_is_not_written(was_open: bool) -> None:
    instance: Any = SimpleNamespace(number=InstanceNumber(5))
    outcome = TerminatedInstance(instance=instance, was_open=was_open)
    assert closed_by(Terminate(id=InstanceId("it")), outcome) == (5 if was_open else None)


@pytest.mark.parametrize("state", [InstanceState.REQUESTED, InstanceState.RUNNING, InstanceState.BLOCKED])
def test_M5_a_cancel_writes_an_instance_that_it_ends_at_once(state: InstanceState) -> None:
    target = TargetInstance(number=InstanceNumber(5), state=state, execution=1)
    outcome = Delivered(instance=target, verdict=EventVerdict.DELIVER)
    cancel = Deliver(id=InstanceId("it"), event=CancelRequested(time_ms=0))
    event = Deliver(id=InstanceId("it"), event=EventReceived(time_ms=0, name="go", value=Payload()))
    assert closed_by(cancel, outcome) == (None if state is InstanceState.RUNNING else 5)
    assert closed_by(event, outcome) is None


def test_M4_other_tracers_of_a_provider_keep_their_ids() -> None:
    provider = TracerProvider()
    tracer: Any = tracer_of(provider)
    assert isinstance(tracer.id_generator, DerivedIds)
    again: Any = tracer_of(provider)
    assert again is tracer
    assert not isinstance(tracer.id_generator._usual, DerivedIds), "a second call changes nothing"
    other: Any = provider.get_tracer("another")
    assert not isinstance(other.id_generator, DerivedIds)


def test_M4_options_keep_their_trace_in_the_next_attempt_and_have_none_without() -> None:
    plain = encode_options(ActivityOptions())
    assert b"trace" not in plain
    assert decode_options(OPTIONS).trace == RUN.encode()
    assert decode_options(options_of_next(OPTIONS, 3)).trace == RUN.encode()
    assert decode_options(with_trace(plain, 'a "quoted" state')).trace == 'a "quoted" state'


def test_M5_ids_differ_by_everything_that_identifies_a_span() -> None:
    runs = {execution_span_id(trace, seed, number) for trace in (1, 2) for seed in (1, 2) for number in (1, 2)}
    tries = {
        attempt_span_id(parent, activity, number, dimension)
        for parent in (1, 2)
        for activity in (1, 2)
        for number in (1, 2)
        for dimension in ("", "0")
    }
    assert (len(runs), len(tries)) == (8, 16)


def test_M4_holdfast_imports_no_part_of_opentelemetry() -> None:
    used = "import sys, holdfast as hf; hf.Engine, hf.Worker, hf.connect; "
    code = used + "print([name for name in sys.modules if 'telemetry' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
