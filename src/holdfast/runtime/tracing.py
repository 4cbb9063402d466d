"""OpenTelemetry spans of what a process has committed (M4, M5). Imported only where tracing is on.

The span of an attempt begins with its body and ends with the commit of its end. That of an execution is written when
its last turn is on disk. Their ids are derived (`core.trace_context`), so that a process can name a span that another
one writes, and a repetition is the same span. A replay and a rejected turn write nothing.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from opentelemetry.context import Context, attach
from opentelemetry.trace import Link, Span, SpanKind, Tracer, set_span_in_context

from holdfast.authoring.activity import current_activity
from holdfast.background import BackgroundTask, Duty
from holdfast.core import history as ev
from holdfast.core.activity_options import decode_options, with_trace
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.run import TurnOutput
from holdfast.core.trace_context import (
    TraceContext,
    attempt_span_id,
    derived_trace_id,
    event_span_id,
    execution_span_id,
    parse_context,
)
from holdfast.runtime.observing import ObservedInstance
from holdfast.runtime.spans import (
    INVALID,
    NANOSECONDS,
    SpanWriter,
    harmless,
    set_error,
    set_failure,
    span_context,
    stored_context,
)
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    Expired,
    HandledRows,
    Outcome,
    Rejected,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import AttemptKey, AttemptRecord, HistoryRow, InstanceNumber, InstanceRecord

logger = logging.getLogger("holdfast")

MOST_EVENTS: Final = 128
"""Events and links of one span; the SDK keeps no more. The newest are kept."""
MOST_OPEN: Final = 10_000
"""Spans of attempts whose end is not committed yet, or never is because another worker has ended them."""
MOST_CLOSED: Final = 1_000
"""Instances that were closed without their code, whose histories are still to be read."""
CLOSE_SECONDS: Final = 5
LOST: Final = b'{"type":"holdfast.errors.WorkerLost","message":"its worker was lost"}'
"""The failure of an attempt that ended with its worker (W6), whose outcome does not carry it."""
FAILED_ATTEMPT: Final = frozenset({AttemptState.FAILED, AttemptState.TIMED_OUT})
CONTINUED: Final = "CONTINUED_AS_NEW"


_decode_payload: Final = msgspec.json.Decoder(ev.Payload).decode


class ExecutionLog:
    """What the span of an execution will show, from its history."""

    def __init__(self, context: TraceContext, parent: TraceContext | None) -> None:
        self.context = context
        """Its own span."""
        self.parent = parent
        self.text = context.encode()
        self.events: deque[tuple[str, int, dict[str, Any]]] = deque(maxlen=MOST_EVENTS)
        self.links: deque[tuple[TraceContext, str]] = deque(maxlen=MOST_EVENTS)
        self._time_ms = 0

    def add(self, events: Iterable[ev.HistoryEvent]) -> None:
        """Add the events of a turn that is on disk."""
        for event in events:
            self._time_ms = getattr(event, "time_ms", self._time_ms)
            match event:
                case ev.TimerStarted():
                    self._note("timer started", timer=event.timer, due_at_ms=event.due_at_ms)
                case ev.TimerFired():
                    self._note("timer fired", timer=event.timer)
                case ev.EventAwaited():
                    self._note("event awaited", **{"event.name": event.name})
                case ev.EventReceived():
                    self._note("event received", **{"event.name": event.name})
                    self._link(event.trace, event.name)
                case ev.UpdateAccepted():
                    self._note("update accepted", **{"update.name": event.name})
                    self._link(event.trace, event.name)
                case ev.CancelRequested():
                    self._note("cancel requested")
                case _:
                    pass

    def _note(self, name: str, **attributes: Any) -> None:
        named = {f"holdfast.{key}": value for key, value in attributes.items()}
        self.events.append((name, self._time_ms * NANOSECONDS, named))

    def _link(self, trace: str, name: str) -> None:
        if trace and (context := parse_context(trace)) is not None:
            self.links.append((context, name))


class _OpenSpan:
    """The span of an attempt whose body has begun here."""

    __slots__ = ("ended_ns", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.ended_ns: int | None = None


class Tracing:
    """Implements `CommitObserver` and `Spans`."""

    def __init__(self, tracer: Tracer, store: Store, *, clock: Callable[[], float], wall_ns: Callable[[], int]) -> None:
        self.clock = clock
        self._wall_ns = wall_ns
        self._spans = SpanWriter(tracer)
        self._store = store
        self._open: OrderedDict[AttemptKey, _OpenSpan] = OrderedDict()
        self._closed: deque[InstanceNumber] = deque(maxlen=MOST_CLOSED)
        self._reading = BackgroundTask(Duty.TRACES, self._write_closed)
        self._has_failed = False

    def failed(self, error: Exception) -> None:
        """Log the first error of a span that could not be written."""
        level = logging.DEBUG if self._has_failed else logging.ERROR
        self._has_failed = True
        logger.log(level, "a span was not written; later errors are logged at the level DEBUG", exc_info=error)

    # ------------------------------------------------------------ calls of a client

    @contextmanager
    def sending(self, what: str, name: str, instance_id: str) -> Generator[str]:
        key = {"start": "workflow.name", "event": "event.name", "update": "update.name"}[what]
        attributes = {"holdfast.instance.id": instance_id, f"holdfast.{key}": name}
        span: Span = INVALID
        try:
            span = self._spans.tracer.start_span(f"{what} {name}", kind=SpanKind.PRODUCER, attributes=attributes)
        except Exception as error:  # noqa: BLE001 - of code of the user
            self.failed(error)
        context = span.get_span_context()
        try:
            yield stored_context(context).encode() if context.is_valid else ""
        except BaseException as error:
            kind = type(error)
            set_error(span, f"{kind.__module__}.{kind.__qualname__}", str(error))
            raise
        finally:
            try:
                span.end()
            except Exception as error:  # noqa: BLE001 - of code of the user
                self.failed(error)

    # ------------------------------------------------------------ bodies of activities

    @harmless
    def set_current(self, running: Any) -> None:
        before = current_activity.get()
        current_activity.set(running)
        if running is None:
            attach(Context())
            attempt = getattr(before, "attempt", None)
            if attempt is not None and (found := self._open.get(attempt.key)) is not None:
                found.ended_ns = self._wall_ns()
            return
        attempt = running.attempt
        span = self._start_attempt(attempt, self._wall_ns())
        self._open[attempt.key] = _OpenSpan(span)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        attach(set_span_in_context(span, Context()))

    def _start_attempt(self, attempt: AttemptRecord, started_ns: int) -> Span:
        key = attempt.key
        attributes: dict[str, Any] = {
            "holdfast.instance.id": attempt.instance_id,
            "holdfast.workflow.name": attempt.workflow,
            "holdfast.execution": key.execution,
            "holdfast.activity.name": attempt.name,
            "holdfast.attempt": key.attempt,
            "holdfast.queue": attempt.queue,
            "holdfast.worker": attempt.owner or "",
        }
        trace = decode_options(attempt.options).trace
        parent = parse_context(trace) if trace else None
        span_id = 0 if parent is None else attempt_span_id(parent.span_id, key.activity, key.attempt, key.dimension)
        return self._spans.start(
            attempt.name, SpanKind.INTERNAL, parent, span_id=span_id, started_ns=started_ns, attributes=attributes
        )

    def _attempt_ended(self, attempt: AttemptRecord, state: AttemptState, closed_at_ms: int, failure: bytes) -> None:
        """The end of an attempt is on disk."""
        found = self._open.pop(attempt.key, None)
        if found is None:  # its body ran in another process, or nowhere
            began_at_ms = attempt.started_at_ms or attempt.available_at_ms
            span = self._start_attempt(attempt, began_at_ms * NANOSECONDS)
            ended_ns = max(began_at_ms, closed_at_ms) * NANOSECONDS
        else:
            span = found.span
            ended_ns = found.ended_ns or self._wall_ns()
        span.set_attribute("holdfast.outcome", str(state))
        if failure and state in FAILED_ATTEMPT:
            set_failure(span, failure, ended_ns)
        span.end(ended_ns)

    # ------------------------------------------------------------ executions

    def _log_of(self, live: ObservedInstance) -> ExecutionLog:
        log: ExecutionLog | None = live.observed
        if log is None:
            log = live.observed = self._new_log(live.run.trace, live.run.seed, live.execution, live.workflow)
        return log

    def _new_log(self, trace: str, seed: int, execution: int, workflow: str) -> ExecutionLog:
        parent = parse_context(trace) if trace else None
        trace_id = derived_trace_id(seed) if parent is None else parent.trace_id
        span_id = execution_span_id(trace_id, seed, execution)
        if parent is None:
            return ExecutionLog(
                TraceContext(trace_id, span_id, self._spans.flags_of(trace_id, f"run {workflow}")), None
            )
        return ExecutionLog(parent.child(span_id) if self._spans.derives_ids else parent, parent)

    @harmless
    def turn_taken(self, live: ObservedInstance, output: TurnOutput) -> None:
        """Add the context of the execution to what the turn starts and sends."""
        effects = output.effects
        if not output.scheduled and output.outcome is None and effects is None:
            return
        log = self._log_of(live)
        text = log.text
        output.scheduled = [
            msgspec.structs.replace(each, encoded_options=with_trace(each.encoded_options, text))
            for each in output.scheduled
        ]
        if effects is not None:
            effects.children = [child._replace(trace=text) for child in effects.children]
            effects.sent = [
                sent._replace(trace=log.context.child(event_span_id(log.context.span_id, sent.number)).encode())
                for sent in effects.sent
            ]
        is_retried = effects is not None and effects.next_attempt is not None
        if (is_retried or isinstance(output.outcome, ev.ContinuedAsNew)) and not live.run.trace:
            live.run.trace = text  # the next execution belongs to the same trace

    @harmless
    def turn_committed(self, live: ObservedInstance, turn: Turn, took_seconds: float) -> None:
        del took_seconds
        for completion in turn.completions:
            self._completed(completion)
        log = self._log_of(live)
        events = ev.decode_events(turn.events) if turn.events else []
        log.add(events)
        effects = turn.effects
        if effects is None:
            return
        raised = {event.number for event in events if isinstance(event, ev.EventRaised)}
        for message in effects.sent:
            is_repeated = message.reply_to is not None and message.reply_to not in raised  # it is awaited later (G19)
            if isinstance(message.event, ev.EventReceived) and not is_repeated:
                self._write_sent(live, log, message.id, message.event)
        if effects.close is None and effects.next is None:
            return
        failed = next((event for event in events if isinstance(event, ev.ExecutionFailed)), None)
        if effects.close is not None:
            outcome = str(effects.close.state)
        else:
            outcome = CONTINUED if failed is None else str(InstanceState.FAILED)
        self._write_execution(
            log,
            live.workflow,
            began_at_ms=live.run.began_at_ms,
            ended_ns=self._wall_ns(),
            failure=b"" if failed is None or failed.failure.reference else bytes(failed.failure.data),
            attributes={
                "holdfast.instance.id": live.id,
                "holdfast.workflow.version": live.run.version,
                "holdfast.execution": live.execution,
                "holdfast.turn": turn.turn,
                "holdfast.worker": turn.owner,
                "holdfast.outcome": outcome,
            },
        )

    @harmless
    def replayed(self, live: ObservedInstance, history: Sequence[HistoryRow], took_seconds: float) -> None:
        """Continue the log of the worker that had the instance before. No span is written."""
        del took_seconds
        log = self._log_of(live)
        for row in history:
            log.add(ev.decode_events(row.events))

    def _write_sent(self, live: ObservedInstance, log: ExecutionLog, target: str, event: ev.EventReceived) -> None:
        """The span of an event that workflow code raised."""
        context = parse_context(event.trace)
        if context is None:
            return
        attributes = {
            "holdfast.instance.id": target,
            "holdfast.event.name": event.name,
            "holdfast.sender.id": live.id,
            "holdfast.execution": live.execution,
        }
        time_ns = event.time_ms * NANOSECONDS
        span = self._spans.start(
            f"event {event.name}",
            SpanKind.PRODUCER,
            log.context,
            span_id=context.span_id,
            started_ns=time_ns,
            attributes=attributes,
        )
        span.end(time_ns)

    def _write_execution(
        self,
        log: ExecutionLog,
        workflow: str,
        *,
        began_at_ms: int,
        ended_ns: int,
        failure: bytes,
        attributes: Mapping[str, Any],
    ) -> None:
        began_ns = began_at_ms * NANOSECONDS
        links = [Link(span_context(context), {"holdfast.event.name": name}) for context, name in log.links]
        span = self._spans.start(
            f"run {workflow}",
            SpanKind.CONSUMER,
            log.parent,
            span_id=log.context.span_id,
            started_ns=began_ns,
            attributes={"holdfast.workflow.name": workflow, **attributes},
            links=links,
            trace_id=log.context.trace_id,
        )
        for name, time_ns, noted in log.events:
            span.add_event(name, noted, time_ns)
        ended_ns = max(began_ns, ended_ns)
        if failure:
            set_failure(span, failure, ended_ns)
        span.end(ended_ns)

    # ------------------------------------------------------------ members

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        del took_seconds
        for member, outcome in zip(members, outcomes, strict=True):
            self._decided(member, outcome)

    @harmless
    def _decided(self, member: Member, outcome: Outcome) -> None:
        if isinstance(outcome, Applied | HandledRows):
            for attempt in outcome.attempts_ended:
                closed_at_ms = attempt.closed_at_ms or self._store.now_ms()
                failure = attempt.failure or (LOST if isinstance(outcome, Applied) else b"")
                self._attempt_ended(attempt, attempt.state, closed_at_ms, failure)
        for ended in getattr(outcome, "ended", ()):
            self._closed_without_code(ended.number)
        match member:
            case Completion() if isinstance(outcome, Applied):
                self._completed(member)
            case OpenNextAttempt() if isinstance(outcome, Applied) and member.attempt is not None:
                ended_at_ms = self._store.now_ms()
                self._attempt_ended(member.attempt, member.ended.to_state, ended_at_ms, member.ended.failure or b"")
            case Turn() if isinstance(outcome, Rejected):
                for completion in member.completions:  # recorded, unless their attempts had ended before (G5)
                    if completion.key not in outcome.stale:
                        self._completed(completion)
            case _:
                if (number := closed_by(member, outcome)) is not None:
                    self._closed_without_code(number)

    def _completed(self, completion: Completion) -> None:
        attempt = completion.attempt
        event = completion.event
        if attempt is None:
            return
        failure = completion.failure or (
            bytes(event.failure.data) if isinstance(event, ev.ActivityFailed) and not event.failure.reference else b""
        )
        closed_at_ms = self._store.now_ms() if event is None else event.time_ms
        self._attempt_ended(attempt, completion.to_state, closed_at_ms, failure)

    # ------------------------------------------------------------ instances that were closed without their code

    def _closed_without_code(self, number: InstanceNumber) -> None:
        """The span of its execution needs its history, which is read apart from the commit."""
        self._closed.append(number)
        self._reading.start()

    async def _write_closed(self) -> None:
        while self._closed:
            number = self._closed.popleft()
            record = await self._store.read_instance(number)
            if record is not None and record.closed_at_ms is not None:
                self._write_record(record, await self._store.read_history(number, record.execution))

    @harmless
    def _write_record(self, record: InstanceRecord, history: Sequence[HistoryRow]) -> None:
        events = [event for row in history for event in ev.decode_events(row.events)]
        started = events[0] if events else None
        if not isinstance(started, ev.Started):
            return  # it was cancelled before its first turn, and no history was written
        log = self._new_log(started.trace, started.seed, record.execution, record.workflow)
        log.add(events)
        self._write_execution(
            log,
            record.workflow,
            began_at_ms=started.time_ms,
            ended_ns=(record.closed_at_ms or 0) * NANOSECONDS,
            failure=_failure_in(record.outcome or b"") if record.state is InstanceState.FAILED else b"",
            attributes={
                "holdfast.instance.id": record.id,
                "holdfast.workflow.version": record.version,
                "holdfast.execution": record.execution,
                "holdfast.turn": record.turn,
                "holdfast.outcome": str(record.state),
            },
        )

    async def close(self) -> None:
        """Write what is left, for a limited time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._reading.wait()
        self._reading.stop()


def closed_by(member: Member, outcome: Outcome) -> InstanceNumber | None:
    """The instance that a member closed without running its code (A9)."""
    match outcome:
        case StartedInstance():
            return outcome.replaced
        case TerminatedInstance() if outcome.was_open:
            return outcome.instance.number
        case Expired() if outcome.verdict is DeadlineVerdict.END:
            return outcome.instance.number
        case Delivered(instance=found) if isinstance(member, Deliver) and isinstance(member.event, ev.CancelRequested):
            return found.number if found.state in (InstanceState.REQUESTED, InstanceState.BLOCKED) else None
        case _:
            return None


def _failure_in(outcome: bytes) -> bytes:
    """The encoded failure in the stored outcome of an instance; empty if it is large."""
    payload = _decode_payload(outcome) if outcome else ev.Payload()
    return b"" if payload.reference or bytes(payload.data) == b"null" else bytes(payload.data)
