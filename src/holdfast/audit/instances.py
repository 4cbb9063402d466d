"""One instance: its row against its history, its inbox, its timers and its attempts.

The deadline of one instance: it will be acted upon, and was not before its time.

The executions of one instance (G4): each before the last ended by continue-as-new, with one successor.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.audit.attempts import HELD, NOTHING_PENDS, OPEN, check_attempts, pending_of, shown
from holdfast.audit.children import STATES, check_children
from holdfast.audit.flows import check_flow
from holdfast.audit.histories import HistoryReading, Terminal, read_history
from holdfast.audit.payloads import Payloads, input_payload
from holdfast.audit.problems import Finding, Rule
from holdfast.audit.updates import RecordedUpdates, check_updates
from holdfast.core import history as ev
from holdfast.core.flow.definition import FlowDefinition
from holdfast.core.history import HistoryEvent, Payload, decode_event, payloads_of
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.storage.large_payloads import MARK
from holdfast.storage.relational.raw_tables import (
    RawAttempt,
    RawChild,
    RawInstance,
    RawMessage,
    RawTimer,
    RawTurn,
    RawUpdate,
)


def check_deadline(row: RawInstance, expiries: Iterable[ev.DeadlinePassed | ev.CancelRequested]) -> list[Finding]:
    """`expiries`: what the deadline did, in the history and in the inbox."""
    findings: list[Finding] = []
    at_ms, expires_ms = row.deadline_at_ms, row.expires_at_ms
    if (at_ms is None) != (expires_ms is None) or (at_ms is not None and row.grace_ms is None):
        text = f"its deadline is {at_ms}, its grace {row.grace_ms}, and it is due at {expires_ms}"
        findings.append((Rule.DEADLINE_KEPT, text))
    elif at_ms is not None and expires_ms is not None and not row.created_at_ms < at_ms <= expires_ms:
        text = f"it was made at {row.created_at_ms}, its deadline is {at_ms}, and it is due at {expires_ms}"
        findings.append((Rule.DEADLINE_KEPT, text))
    for event in expiries:
        if at_ms is None:
            findings.append((Rule.DEADLINE_KEPT, "its deadline has passed, and it has none"))
        elif event.time_ms < at_ms:
            text = f"its deadline was acted upon {at_ms - event.time_ms} ms before it came"
            findings.append((Rule.DEADLINE_KEPT, text))
    return findings


@dataclass(frozen=True, slots=True)
class Execution:
    """The rows of one execution of one instance."""

    number: int
    turns: Sequence[RawTurn] = ()
    attempts: Sequence[RawAttempt] = ()
    children: Sequence[RawChild] = ()
    is_closing: bool = False
    """Its children are being closed."""


def check_earlier(execution: Execution, reading: HistoryReading, payloads: Payloads) -> list[Finding]:
    """An execution before the last: complete, continued as new, and nothing of it waits."""
    number = execution.number
    findings = [*reading.findings]
    if reading.has_references:
        findings += payloads.check_events(reading.events)
    if not isinstance(reading.terminal, ev.ContinuedAsNew) and reading.is_complete:
        findings.append((Rule.ONE_SUCCESSOR, f"execution {number} has a successor, and was not continued as new"))
    findings += check_attempts(execution.attempts, reading, NOTHING_PENDS, payloads, is_open=False)
    findings += [
        (Rule.NOTHING_PENDING, f"execution {number} has ended, and {shown(attempt)} is {attempt.state}")
        for attempt in execution.attempts
        if attempt.state in OPEN
    ]
    return findings


def check_succession(number: int, reading: HistoryReading, given: Payload | None, payloads: Payloads) -> list[Finding]:
    """`given`: what the execution before it continued as new with, where that is known."""
    if given is None or reading.started is None or payloads.are_same(reading.started.input, given):
        return []
    return [(Rule.ONE_SUCCESSOR, f"execution {number} was not started with what the one before it gave")]


_S = InstanceState
CLAIMABLE: Final = frozenset({_S.REQUESTED, _S.RUNNING, _S.CANCEL_REQUESTED})
"""G5: the states in which a worker may claim an instance."""
ENDS: Final[Mapping[InstanceState, tuple[type[Terminal], ...]]] = {
    _S.COMPLETED: (ev.ExecutionCompleted,),
    _S.FAILED: (ev.ExecutionFailed, ev.DeadlinePassed),
    _S.TERMINATED: (ev.InstanceTerminated,),
    _S.CANCELLED: (ev.ExecutionCancelled, ev.InstanceCancelled),
}
_payload = msgspec.json.Decoder(Payload)


@dataclass(frozen=True, slots=True)
class InstanceTables:
    """The rows of one instance that belong to no execution, or to its last one only."""

    row: RawInstance
    payloads: Payloads
    definition: Callable[[str], FlowDefinition | Finding]
    """The flow under a hash, or why there is none."""
    messages: Sequence[RawMessage] = ()
    timers: Sequence[RawTimer] = ()
    updates: Sequence[RawUpdate] = ()


def check_instance(tables: InstanceTables, executions: Iterable[Execution], workers: Container[str]) -> list[Finding]:
    """Every rule that concerns one instance. Its executions are read one after the other."""
    row = tables.row
    if row.state not in STATES:
        return [(Rule.ROWS_READABLE, f"its state is {row.state!r}, which is none")]
    inbox, findings = _read_inbox(tables.messages)
    recorded = RecordedUpdates()
    last = Execution(row.execution)
    reading: HistoryReading | None = None
    given: Payload | None = None
    expected = 1
    strangers = {message.execution for message in tables.messages} | {timer.execution for timer in tables.timers}
    for execution in executions:
        number = execution.number
        if not 1 <= number <= row.execution:
            strangers.add(number)
            continue
        findings += _check_gap(expected, number)
        reading = read_history(execution.turns, number)
        findings += check_succession(number, reading, given if number == expected else None, tables.payloads)
        expected = number + 1
        if not reading.is_complete:
            recorded.is_readable = False
        elif reading.has_updates:
            recorded.read(execution.turns)
        if number == row.execution:
            last = execution
            continue
        findings += check_earlier(execution, reading, tables.payloads)
        findings += _check_inputs(execution.attempts, tables.payloads)
        findings += _check_family(execution, reading, (), is_active=False)
        given = reading.terminal.input if isinstance(reading.terminal, ev.ContinuedAsNew) else None
    if reading is None or expected <= row.execution:
        findings += _check_gap(expected, row.execution)
        reading = read_history((), row.execution)
    findings += _check_strangers(row, strangers)
    findings += _check_last(tables, last, reading, inbox)
    findings += check_updates(recorded, tables.updates, inbox, tables.payloads, is_open=_is_open(row))
    return findings + _check_owner(tables, last.attempts, workers)


def _check_gap(expected: int, found: int) -> list[Finding]:
    """Executions of which nothing is there."""
    if found <= expected:
        return []
    missing = f"execution {expected} has" if found == expected + 1 else f"executions {expected} to {found - 1} have"
    return [(Rule.ONE_SUCCESSOR, f"{missing} a successor and no history")]


def _check_strangers(row: RawInstance, strangers: Iterable[int]) -> list[Finding]:
    """Rows of executions that the instance does not have."""
    return [
        (Rule.ROWS_BELONG, f"it has rows of execution {stranger}, and is at {row.execution}")
        for stranger in sorted(strangers)
        if not 1 <= stranger <= row.execution
    ]


def _check_last(
    tables: InstanceTables, last: Execution, reading: HistoryReading, inbox: list[HistoryEvent]
) -> list[Finding]:
    """The execution that the instance is at, with its row."""
    row = tables.row
    payloads = tables.payloads
    findings = [*reading.findings]
    if row.turn != len(last.turns):
        text = f"it says that {row.turn} turns were taken, and the history has {len(last.turns)}"
        findings.append((Rule.HISTORY_GAP_FREE, text))
    findings += _check_start(row, reading, inbox)
    if row.superseded_at_ms is not None and _is_open(row):
        findings.append((Rule.ONE_CURRENT, f"it is {row.state}, and its id was given to a new instance"))
    findings += _check_end(row, reading, payloads)
    expiries = [event for event in inbox if isinstance(event, ev.CancelRequested) and event.by_deadline]
    findings += check_deadline(row, [*reading.expiries, *expiries])
    if reading.has_references:
        findings += payloads.check_events(reading.events)
    for event in inbox:
        for payload in payloads_of(event):
            findings += payloads.check(payload, "a message in the inbox")
    findings += payloads.check(input_payload(row.input), "its input")
    findings += _check_inputs(last.attempts, payloads)
    findings += check_attempts(last.attempts, reading, pending_of(inbox), payloads, is_open=_is_open(row))
    findings += check_flow(row, reading, last.attempts, inbox, tables.definition)
    findings += _check_family(last, reading, inbox, is_active=_is_open(row))
    if _is_open(row):
        return findings + _check_timers(tables, reading)
    return findings + _check_pending(tables, last.attempts)


def _check_inputs(attempts: Iterable[RawAttempt], payloads: Payloads) -> list[Finding]:
    """Large inputs are named by their reference, as other payloads are."""
    findings: list[Finding] = []
    for attempt in attempts:
        if attempt.input.startswith(MARK):
            findings += payloads.check(input_payload(attempt.input), f"the input of {shown(attempt)}")
    return findings


def _is_open(row: RawInstance) -> bool:
    return row.state not in INSTANCE_FINAL


def _read_inbox(messages: Sequence[RawMessage]) -> tuple[list[HistoryEvent], list[Finding]]:
    events: list[HistoryEvent] = []
    findings: list[Finding] = []
    for message in messages:
        try:
            events.append(decode_event(message.event))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            findings.append((Rule.EVENTS_READABLE, f"message {message.row} cannot be decoded: {error}"))
    return events, findings


def _check_start(row: RawInstance, reading: HistoryReading, inbox: list[HistoryEvent]) -> list[Finding]:
    """Before the first turn the start waits in the inbox; afterwards it is the first event."""
    waiting = [event for event in inbox if isinstance(event, ev.Started)]
    recorded = [] if reading.started is None else [reading.started]
    findings: list[Finding] = []
    if _is_open(row) and reading.is_complete and len(waiting) + len(recorded) != 1:
        where = f"{len(recorded)} times in the history and {len(waiting)} times in the inbox"
        findings.append((Rule.STARTED_ONCE, f"its start is there {where}"))
    for started in (*recorded, *waiting):
        if started.workflow != row.workflow:
            text = f"it is an instance of {row.workflow!r}, and was started as {started.workflow!r}"
            findings.append((Rule.STARTED_ONCE, text))
        given, stored = started.input, input_payload(row.input)
        if (given.reference, bytes(given.data)) != (stored.reference, bytes(stored.data)):
            findings.append((Rule.STARTED_ONCE, "its input is not the one that it was started with"))
        if (started.depth > 0) != (row.parent is not None):
            whose = "a client" if row.parent is None else f"instance number {row.parent}"
            findings.append((Rule.CHILDREN_TIED, f"it was started by {whose}, and its start says otherwise"))
        if started.execution != row.execution:
            text = f"it is at execution {row.execution}, and its start is that of execution {started.execution}"
            findings.append((Rule.STARTED_ONCE, text))
    if reading.started is not None and row.state == _S.REQUESTED:
        findings.append((Rule.STARTED_ONCE, "it is REQUESTED, but its history has begun"))
    return findings


def _check_family(
    execution: Execution, reading: HistoryReading, inbox: Sequence[HistoryEvent], *, is_active: bool
) -> list[Finding]:
    """The children of one execution."""
    if not execution.children and not reading.children:
        return []
    return check_children(
        execution.number, reading, execution.children, inbox, is_active=is_active, is_closing=execution.is_closing
    )


def _check_end(row: RawInstance, reading: HistoryReading, payloads: Payloads) -> list[Finding]:
    """Closed by its state, by its time, by its outcome and by its history, or by none of them."""
    findings: list[Finding] = []
    closed = not _is_open(row)
    if closed != (row.closed_at_ms is not None):
        when = "no time of its end" if closed else "a time of its end"
        findings.append((Rule.TERMINAL_LAST, f"it is {row.state} and has {when}"))
    if reading.is_complete and not closed and reading.terminal is not None:
        findings.append((Rule.TERMINAL_LAST, f"it is {row.state}, but its history has come to an end"))
    expected = ENDS.get(_S(row.state))
    if expected is None or not reading.is_complete:
        return findings
    if reading.terminal is None:
        return [*findings, (Rule.TERMINAL_LAST, f"it is {row.state}, but its history has no end")]
    if not isinstance(reading.terminal, expected):
        return [*findings, (Rule.TERMINAL_LAST, f"it is {row.state}, but its history ends otherwise")]
    return findings + _check_stored_outcome(row, reading.terminal, payloads)


def _check_stored_outcome(row: RawInstance, terminal: Terminal, payloads: Payloads) -> list[Finding]:
    try:
        stored = _payload.decode(row.outcome or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [(Rule.TERMINAL_LAST, f"its outcome cannot be decoded: {error}")]
    findings = payloads.check(stored, "its outcome")
    recorded = _recorded_outcome(terminal)
    if recorded is not None and not payloads.are_same(stored, recorded):
        findings.append((Rule.TERMINAL_LAST, "its outcome is not the one that its history ends with"))
    return findings


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


def _check_pending(tables: InstanceTables, attempts: Iterable[RawAttempt]) -> list[Finding]:
    """C5: a closed instance left nothing behind that waits or runs, except bodies that were told to stop."""
    state = tables.row.state
    findings: list[Finding] = []
    if tables.messages:
        findings.append((Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.messages)} messages in its inbox"))
    if tables.timers:
        findings.append((Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.timers)} timers"))
    findings += [
        (Rule.NOTHING_PENDING, f"it is {state}, and {shown(attempt)} is {attempt.state}")
        for attempt in attempts
        if attempt.state in OPEN
    ]
    return findings


def _check_timers(tables: InstanceTables, reading: HistoryReading) -> list[Finding]:
    if not reading.is_complete:
        return []
    expected = reading.open_timers
    stored = {timer.timer: timer.due_at_ms for timer in tables.timers if timer.execution == tables.row.execution}
    findings: list[Finding] = []
    for timer in sorted(expected.keys() | stored.keys()):
        if timer not in stored:
            findings.append((Rule.TIMERS_AGREE, f"timer {timer} was started and is lost: it would never fire"))
        elif timer not in expected:
            findings.append((Rule.TIMERS_AGREE, f"timer {timer} is open, and the history does not know it"))
        elif stored[timer] != expected[timer]:
            text = f"timer {timer} is due at {stored[timer]}, and the history says {expected[timer]}"
            findings.append((Rule.TIMERS_AGREE, text))
    return findings


def _check_owner(tables: InstanceTables, attempts: Iterable[RawAttempt], workers: Container[str]) -> list[Finding]:
    row = tables.row
    findings: list[Finding] = []
    if row.owner is not None and row.owner not in workers:
        findings.append((Rule.OWNERS_KNOWN, f"its owner {row.owner!r} is no known worker"))
    findings += [
        (Rule.OWNERS_KNOWN, f"{shown(attempt)} is owned by {attempt.owner!r}, which is no known worker")
        for attempt in attempts
        if attempt.state in HELD and attempt.owner is not None and attempt.owner not in workers
    ]
    if why := _claimable_disagreement(tables):
        findings.append((Rule.CLAIMABLE_AGREES, why))
    return findings


def _claimable_disagreement(tables: InstanceTables) -> str | None:
    """G2, G5: owned or parked, nobody claims it; otherwise it is claimable once it has something to do."""
    row = tables.row
    if row.claimable_at_ms is not None:
        if row.owner is not None:
            return "it is owned and claimable at once"
        return None if row.state in CLAIMABLE else f"it is {row.state} and claimable"
    if row.owner is not None:
        return None if _is_open(row) else f"it is {row.state} and owned"
    if row.state in CLAIMABLE and tables.messages:
        return "nobody owns it, messages wait for it, and nobody may claim it"
    if row.state in CLAIMABLE and tables.timers:
        return "nobody owns it, timers wait for it, and nobody may claim it"
    if (row.state == _S.BLOCKED) != (row.blocked is not None) and _is_open(row):
        return f"it is {row.state}, and the reason why it is parked is {row.blocked!r}"
    return None
