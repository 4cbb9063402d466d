"""Checks one instance: its row and its executions against its history, inbox, timers, attempts, children and updates.

Executions are read one after the other. Each before the last ended by continue-as-new and has one successor (G4); the
last one agrees with the row of the instance.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.audit.attempts import HELD, NOTHING_PENDS, OPEN, check_attempts, pending_of, shown
from holdfast.audit.attributes import check_attributes
from holdfast.audit.children import STATES, check_children
from holdfast.audit.flows import check_flow
from holdfast.audit.histories import HistoryReading, Terminal, read_history
from holdfast.audit.offers import check_offers
from holdfast.audit.payloads import Payloads, input_payload
from holdfast.audit.problems import Finding, Rule
from holdfast.audit.updates import RecordedUpdates, check_updates
from holdfast.core import history as ev
from holdfast.core.flow.definition import FlowDefinition
from holdfast.core.history import HistoryEvent, Payload, decode_event, payloads_of
from holdfast.core.lifecycle import INSTANCE_FINAL, AttemptState, InstanceState
from holdfast.core.pauses import is_withheld
from holdfast.core.versions import version_text
from holdfast.storage.large_payloads import MARK
from holdfast.storage.relational.raw_tables import (
    RawAttempt,
    RawAttribute,
    RawChild,
    RawInstance,
    RawMessage,
    RawOffer,
    RawTimer,
    RawTurn,
    RawUpdate,
)
from holdfast.storage.versions import read_version

_S = InstanceState
CLAIMABLE: Final = frozenset({_S.REQUESTED, _S.RUNNING, _S.CANCEL_REQUESTED})
"""G5: the states in which a worker may claim an instance."""
BEFORE_PAUSE: Final = (_S.REQUESTED, _S.RUNNING)
"""The states to which an instance returns (A9)."""
ENDS: Final[Mapping[InstanceState, tuple[type[Terminal], ...]]] = {
    _S.COMPLETED: (ev.ExecutionCompleted,),
    _S.FAILED: (ev.ExecutionFailed, ev.DeadlinePassed),
    _S.TERMINATED: (ev.InstanceTerminated,),
    _S.CANCELLED: (ev.ExecutionCancelled, ev.InstanceCancelled),
}
_payload = msgspec.json.Decoder(Payload)


@dataclass(frozen=True, slots=True)
class Execution:
    """The rows of one execution of one instance."""

    number: int
    turns: Sequence[RawTurn] = ()
    attempts: Sequence[RawAttempt] = ()
    children: Sequence[RawChild] = ()
    offers: Sequence[RawOffer] = ()
    is_closing: bool = False
    """Whether its children are being closed."""


@dataclass(frozen=True, slots=True)
class InstanceTables:
    """The rows of one instance that belong to no execution, or to its last one only."""

    row: RawInstance
    payloads: Payloads
    definition: Callable[[str], FlowDefinition | Finding]
    """The flow with a hash, or the reason why there is none."""
    messages: Sequence[RawMessage] = ()
    timers: Sequence[RawTimer] = ()
    updates: Sequence[RawUpdate] = ()
    attributes: Sequence[RawAttribute] = ()

    @property
    def is_open(self) -> bool:
        return self.row.state not in INSTANCE_FINAL


def check_instance(
    tables: InstanceTables, executions: Iterable[Execution], workers: Container[str]
) -> Iterator[Finding]:
    """Checks every rule that concerns one instance."""
    row = tables.row
    if row.state not in STATES:
        yield Rule.ROWS_READABLE, f"it has the unknown state {row.state!r}"
        return
    inbox, findings = _read_inbox(tables.messages)
    yield from findings
    yield from check_attributes(row, tables.attributes)
    recorded = RecordedUpdates()
    last = Execution(row.execution)
    reading: HistoryReading | None = None
    given: Payload | None = None
    expected = 1
    is_deleted = True
    unknown = {message.execution for message in tables.messages} | {timer.execution for timer in tables.timers}
    for execution in executions:
        number = execution.number
        if not 1 <= number <= row.execution:
            unknown.add(number)
            continue
        if is_deleted and number < row.execution and not (execution.turns or execution.attempts or execution.offers):
            expected = number + 1  # R34: only its children are left
            continue
        yield from _check_gap(number if is_deleted else expected, number)
        expected = number if is_deleted else expected
        is_deleted = False
        yield from check_offers(execution.attempts, execution.offers, is_open=tables.is_open)
        reading = read_history(execution.turns, number)
        yield from _check_succession(number, reading, given if number == expected else None, tables.payloads)
        expected = number + 1
        if not reading.is_complete:
            recorded.is_readable = False
        elif reading.has_updates and recorded.is_readable:
            yield from recorded.read(execution.turns)
        if number == row.execution:
            last = execution
            continue
        yield from _check_earlier(execution, reading, tables.payloads)
        given = _input_of_next(reading)
    if reading is None or expected <= row.execution:
        yield from _check_gap(expected, row.execution)
        reading = read_history((), row.execution)
    for number in sorted(unknown):
        if not 1 <= number <= row.execution:
            yield Rule.ROWS_BELONG, f"it has rows of execution {number}, and is at {row.execution}"
    yield from _check_last(tables, last, reading, inbox)
    yield from check_updates(recorded, tables.updates, inbox, tables.payloads, is_open=tables.is_open)
    yield from _check_owner(tables, last.attempts, workers)


def _has_successor(terminal: Terminal | None) -> bool:
    """Whether the end of an execution says that another one follows (G4, G18)."""
    is_retried = isinstance(terminal, ev.ExecutionFailed) and terminal.retry_at_ms is not None
    return is_retried or isinstance(terminal, ev.ContinuedAsNew)


def _input_of_next(reading: HistoryReading) -> Payload | None:
    """The input of the next execution, as the history of this one says."""
    if isinstance(reading.terminal, ev.ContinuedAsNew):
        return reading.terminal.input
    return reading.started.input if reading.started is not None and _has_successor(reading.terminal) else None


def _read_inbox(messages: Sequence[RawMessage]) -> tuple[list[HistoryEvent], list[Finding]]:
    events: list[HistoryEvent] = []
    findings: list[Finding] = []
    for message in messages:
        try:
            events.append(decode_event(message.event))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            findings.append((Rule.EVENTS_READABLE, f"message {message.row} cannot be decoded: {error}"))
    return events, findings


# ---------------------------------------------------------------- executions


def _check_gap(expected: int, found: int) -> Iterator[Finding]:
    """Finds executions without rows."""
    if found > expected:
        missing = f"execution {expected} has" if found == expected + 1 else f"executions {expected} to {found - 1} have"
        yield Rule.ONE_SUCCESSOR, f"{missing} a successor and no history"


def _check_succession(
    number: int, reading: HistoryReading, given: Payload | None, payloads: Payloads
) -> Iterator[Finding]:
    """`given`: the input that the execution before continued as new with, if that is known."""
    if given is not None and reading.started is not None and not payloads.are_same(reading.started.input, given):
        yield Rule.ONE_SUCCESSOR, f"execution {number} did not start with the input of the continue-as-new before it"


def _check_earlier(execution: Execution, reading: HistoryReading, payloads: Payloads) -> Iterator[Finding]:
    """An execution before the last was continued as new, and nothing of it is pending."""
    number = execution.number
    yield from reading.findings
    if reading.has_references:
        yield from payloads.check_events(reading.events)
    if not _has_successor(reading.terminal) and reading.is_complete:
        yield Rule.ONE_SUCCESSOR, f"execution {number} has a successor, and was neither continued as new nor retried"
    yield from check_attempts(execution.attempts, reading, NOTHING_PENDS, payloads, is_open=False)
    for attempt in execution.attempts:
        if attempt.state in OPEN:
            yield Rule.NOTHING_PENDING, f"execution {number} has ended, and {shown(attempt)} is {attempt.state}"
    yield from _check_inputs(execution.attempts, payloads)
    yield from _check_children(execution, reading, (), is_active=False)


def _check_last(
    tables: InstanceTables, last: Execution, reading: HistoryReading, inbox: list[HistoryEvent]
) -> Iterator[Finding]:
    """The last execution agrees with the row of the instance."""
    row = tables.row
    payloads = tables.payloads
    yield from reading.findings
    if row.turn != len(last.turns):
        yield Rule.HISTORY_GAP_FREE, f"it counts {row.turn} turns, and the history has {len(last.turns)}"
    yield from _check_start(tables, reading, inbox)
    if row.superseded_at_ms is not None and tables.is_open:
        yield Rule.ONE_CURRENT, f"it is {row.state}, and a newer instance has its id"
    yield from _check_end(tables, reading)
    expiries = [event for event in inbox if isinstance(event, ev.CancelRequested) and event.by_deadline]
    yield from _check_deadline(row, [*reading.expiries, *expiries])
    if reading.has_references:
        yield from payloads.check_events(reading.events)
    for event in inbox:
        for payload in payloads_of(event):
            yield from payloads.check(payload, "a message in the inbox")
    yield from payloads.check(input_payload(row.input), "its input")
    yield from _check_inputs(last.attempts, payloads)
    yield from check_attempts(last.attempts, reading, pending_of(inbox), payloads, is_open=tables.is_open)
    yield from _check_pause(row, last.attempts)
    yield from _check_version(row, reading)
    yield from check_flow(row, reading, last.attempts, inbox, tables.definition)
    yield from _check_children(last, reading, inbox, is_active=tables.is_open)
    if tables.is_open:
        yield from _check_timers(tables, reading)
    else:
        yield from _check_pending(tables, last.attempts)


def _check_inputs(attempts: Iterable[RawAttempt], payloads: Payloads) -> Iterator[Finding]:
    """Checks large inputs, which the rows of attempts name by reference."""
    for attempt in attempts:
        if attempt.input.startswith(MARK):
            yield from payloads.check(input_payload(attempt.input), f"the input of {shown(attempt)}")


def _check_children(
    execution: Execution, reading: HistoryReading, inbox: Sequence[HistoryEvent], *, is_active: bool
) -> Iterator[Finding]:
    if execution.children or reading.children:
        yield from check_children(
            execution.number, reading, execution.children, inbox, is_active=is_active, is_closing=execution.is_closing
        )


# ---------------------------------------------------------------- start, end and deadline


def _check_start(tables: InstanceTables, reading: HistoryReading, inbox: list[HistoryEvent]) -> Iterator[Finding]:
    """The start is in the inbox before the first turn, and is the first event of the history afterwards."""
    row = tables.row
    waiting = [event for event in inbox if isinstance(event, ev.Started)]
    recorded = [] if reading.started is None else [reading.started]
    if tables.is_open and reading.is_complete and len(waiting) + len(recorded) != 1:
        where = f"{len(recorded)} times in the history and {len(waiting)} times in the inbox"
        yield Rule.STARTED_ONCE, f"its start is {where}"
    for started in (*recorded, *waiting):
        if started.workflow != row.workflow:
            text = f"it is an instance of {row.workflow!r}, and was started as {started.workflow!r}"
            yield Rule.STARTED_ONCE, text
        given = started.input
        stored = input_payload(row.input)
        if (given.reference, bytes(given.data)) != (stored.reference, bytes(stored.data)):
            yield Rule.STARTED_ONCE, "its input is not the one that it was started with"
        if (started.depth > 0) != (row.parent is not None):
            starter = "a client" if row.parent is None else f"instance number {row.parent}"
            yield Rule.CHILDREN_TIED, f"its row names {starter} as its starter, and its start does not"
        if started.execution != row.execution:
            text = f"it is at execution {row.execution}, and its start is that of execution {started.execution}"
            yield Rule.STARTED_ONCE, text
    if reading.started is not None and row.state == _S.REQUESTED:
        yield Rule.STARTED_ONCE, "it is REQUESTED, but its history has begun"


def _check_end(tables: InstanceTables, reading: HistoryReading) -> Iterator[Finding]:
    """The state, the time of the end, the outcome and the history agree on whether and how the instance ended."""
    row = tables.row
    if tables.is_open != (row.closed_at_ms is None):
        when = "a time of its end" if tables.is_open else "no time of its end"
        yield Rule.TERMINAL_LAST, f"it is {row.state} and has {when}"
    if reading.is_complete and tables.is_open and reading.terminal is not None:
        yield Rule.TERMINAL_LAST, f"it is {row.state}, but its history has ended"
    expected = ENDS.get(_S(row.state))
    if expected is None or not reading.is_complete:
        return
    if reading.terminal is None:
        yield Rule.TERMINAL_LAST, f"it is {row.state}, but its history has no end"
    elif not isinstance(reading.terminal, expected):
        yield Rule.TERMINAL_LAST, f"it is {row.state}, but its history ends otherwise"
    else:
        yield from _check_outcome(row, reading.terminal, tables.payloads)


def _check_version(row: RawInstance, reading: HistoryReading) -> Iterator[Finding]:
    """An execution that has taken a turn runs on the version that this turn recorded."""
    version = read_version(row.version)
    recorded = "" if reading.started is None else reading.started.version
    if version is None:
        if row.turn > 0 and not isinstance(reading.terminal, ev.FROM_OUTSIDE):
            yield Rule.VERSION_KEPT, "its code has taken a turn, and no version is chosen"
    elif reading.started is not None and version != recorded:
        yield Rule.VERSION_KEPT, f"it has {version_text(version)}, and its history {version_text(recorded)}"


def _check_outcome(row: RawInstance, terminal: Terminal, payloads: Payloads) -> Iterator[Finding]:
    try:
        stored = _payload.decode(row.outcome or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield Rule.TERMINAL_LAST, f"its outcome cannot be decoded: {error}"
        return
    yield from payloads.check(stored, "its outcome")
    recorded = _recorded_outcome(terminal)
    if recorded is not None and not payloads.are_same(stored, recorded):
        yield Rule.TERMINAL_LAST, "its outcome is not the one at the end of its history"


def _recorded_outcome(terminal: Terminal) -> Payload | None:
    match terminal:
        case ev.ExecutionCompleted():
            return terminal.result
        case ev.ExecutionFailed() | ev.DeadlinePassed():
            return terminal.failure
        case ev.InstanceTerminated() | ev.ExecutionCancelled() | ev.InstanceCancelled():
            return Payload(msgspec.Raw(msgspec.json.encode(terminal.reason or None)))
        case ev.ContinuedAsNew():
            return None


def _check_deadline(row: RawInstance, expiries: Iterable[ev.DeadlinePassed | ev.CancelRequested]) -> Iterator[Finding]:
    """`expiries`: the effects of the deadline in the history and in the inbox."""
    at_ms = row.deadline_at_ms
    expires_ms = row.expires_at_ms
    is_held = row.state == _S.PAUSED and expires_ms is None  # it passed during the pause (R25)
    if ((at_ms is None) != (expires_ms is None) and not is_held) or (at_ms is not None and row.grace_ms is None):
        yield Rule.DEADLINE_KEPT, f"its deadline is {at_ms}, its grace {row.grace_ms}, and it is due at {expires_ms}"
    elif at_ms is not None and expires_ms is not None and not row.created_at_ms < at_ms <= expires_ms:
        text = f"it was created at {row.created_at_ms}, its deadline is {at_ms}, and it is due at {expires_ms}"
        yield Rule.DEADLINE_KEPT, text
    for event in expiries:
        if at_ms is None:
            yield Rule.DEADLINE_KEPT, "its deadline has passed, and it has none"
        elif event.time_ms < at_ms:
            yield Rule.DEADLINE_KEPT, f"its deadline took effect {at_ms - event.time_ms} ms early"


# ---------------------------------------------------------------- pauses, pending work and owners


def _check_pause(row: RawInstance, attempts: Sequence[RawAttempt]) -> Iterator[Finding]:
    """R20, R21: a PAUSED instance, and no other, has a time and a state to return to, and withholds READY attempts."""
    is_paused = row.state == _S.PAUSED
    if is_paused != (row.paused_at_ms is not None) or is_paused != (row.paused_from in BEFORE_PAUSE):
        since = f"paused at {row.paused_at_ms} in the state {row.paused_from}"
        yield Rule.PAUSE_HOLDS, f"it is {row.state}, and its row has: {since}"
    for attempt in attempts:
        if attempt.state != AttemptState.READY:
            continue
        withheld = is_withheld(attempt.available_at_ms)
        if is_paused and not withheld:
            yield Rule.PAUSE_HOLDS, f"it is PAUSED, and {shown(attempt)} can be claimed"
        elif withheld and not is_paused:
            yield Rule.PAUSE_HOLDS, f"it is {row.state}, and {shown(attempt)} is withheld for ever"
        elif attempt.failure is not None and not withheld:
            yield Rule.PAUSE_HOLDS, f"{shown(attempt)} is READY and has a failure"


def _check_pending(tables: InstanceTables, attempts: Iterable[RawAttempt]) -> Iterator[Finding]:
    """C5: a closed instance has nothing that waits or runs, except bodies that were asked to stop."""
    state = tables.row.state
    if tables.messages:
        yield Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.messages)} messages in its inbox"
    if tables.timers:
        yield Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.timers)} timers"
    for attempt in attempts:
        if attempt.state in OPEN:
            yield Rule.NOTHING_PENDING, f"it is {state}, and {shown(attempt)} is {attempt.state}"


def _check_timers(tables: InstanceTables, reading: HistoryReading) -> Iterator[Finding]:
    if not reading.is_complete:
        return
    expected = reading.open_timers
    stored = {timer.timer: timer.due_at_ms for timer in tables.timers if timer.execution == tables.row.execution}
    for timer in sorted(expected.keys() | stored.keys()):
        if timer not in stored:
            yield Rule.TIMERS_AGREE, f"timer {timer} was started and has no row: it would never fire"
        elif timer not in expected:
            yield Rule.TIMERS_AGREE, f"timer {timer} is open, and is not in the history"
        elif stored[timer] != expected[timer]:
            yield Rule.TIMERS_AGREE, f"timer {timer} is due at {stored[timer]}, and in the history at {expected[timer]}"


def _check_owner(tables: InstanceTables, attempts: Iterable[RawAttempt], workers: Container[str]) -> Iterator[Finding]:
    row = tables.row
    if row.owner is not None and row.owner not in workers:
        yield Rule.OWNERS_KNOWN, f"its owner {row.owner!r} is not a registered worker"
    for attempt in attempts:
        if attempt.state in HELD and attempt.owner is not None and attempt.owner not in workers:
            text = f"the owner {attempt.owner!r} of {shown(attempt)} is not a registered worker"
            yield Rule.OWNERS_KNOWN, text
    if why := _claimable_disagreement(tables):
        yield Rule.CLAIMABLE_AGREES, why


def _claimable_disagreement(tables: InstanceTables) -> str | None:
    """G2, G5: an owned or blocked instance is not claimable; any other is once it has something to do."""
    row = tables.row
    if row.claimable_at_ms is not None:
        if row.owner is not None:
            return "it is owned and claimable at once"
        return None if row.state in CLAIMABLE else f"it is {row.state} and claimable"
    if row.owner is not None:
        return None if tables.is_open else f"it is {row.state} and owned"
    if row.state in CLAIMABLE and tables.messages:
        return "it has messages and no owner, and is not claimable"
    if row.state in CLAIMABLE and tables.timers:
        return "it has timers and no owner, and is not claimable"
    if (row.state == _S.BLOCKED) != (row.blocked is not None) and tables.is_open:
        return f"it is {row.state}, and the reason why it is blocked is {row.blocked!r}"
    return None
