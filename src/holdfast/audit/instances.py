"""One instance: its row against its history, its inbox, its timers and its attempts."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.audit.attempts import HELD, OPEN, Answer, check_attempts, shown
from holdfast.audit.children import check_children
from holdfast.audit.deadlines import check_deadline
from holdfast.audit.executions import check_earlier
from holdfast.audit.flows import check_flow
from holdfast.audit.histories import (
    Finding,
    HistoryReading,
    Terminal,
    check_payload,
    check_payloads,
    data_of,
    read_history,
)
from holdfast.audit.problems import Rule
from holdfast.audit.updates import check_updates
from holdfast.core import events as ev
from holdfast.core.events import HistoryEvent, Payload, decode_event, payloads_of
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.storage.large import reference_of
from holdfast.storage.relational.audit import (
    RawAttempt,
    RawChild,
    RawInstance,
    RawMessage,
    RawTimer,
    RawTurn,
    RawUpdate,
)

_S = InstanceState
CLAIMABLE = frozenset({_S.REQUESTED, _S.RUNNING, _S.CANCEL_REQUESTED})
"""G5: the states in which somebody may claim an instance."""
ENDS: Mapping[InstanceState, tuple[type[Terminal], ...]] = {
    _S.COMPLETED: (ev.WorkflowCompleted,),
    _S.FAILED: (ev.WorkflowFailed, ev.DeadlinePassed),
    _S.TERMINATED: (ev.WorkflowTerminated,),
    _S.CANCELLED: (ev.WorkflowCancelled, ev.InstanceCancelled),
}
_payload = msgspec.json.Decoder(Payload)


def _no_flow(_: str) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class InstanceTables:
    """All rows of one instance."""

    row: RawInstance
    turns: Sequence[RawTurn]
    attempts: Sequence[RawAttempt]
    messages: Sequence[RawMessage]
    timers: Sequence[RawTimer]
    updates: Sequence[RawUpdate]
    payloads: dict[str, bytes]
    children: Sequence[RawChild] = ()
    closings: Container[int] = ()
    flow: Callable[[str], bytes | None] = _no_flow
    """The definition under a hash."""


def check_instance(tables: InstanceTables, workers: Container[str]) -> list[Finding]:
    """Every rule that concerns one instance."""
    row = tables.row
    if row.state not in set(_S):
        return [(Rule.ROWS_READABLE, f"its state is {row.state!r}, which is none")]
    findings = _check_executions(tables)
    findings += check_earlier(row.execution, tables.turns, tables.attempts, tables.payloads)
    reading = read_history([turn for turn in tables.turns if turn.execution == row.execution], row.execution)
    findings += reading.findings
    inbox, broken = _read_inbox(tables.messages)
    findings += broken
    findings += _check_turn(row, tables)
    findings += _check_start(row, reading, inbox)
    if row.superseded_at_ms is not None and _is_open(row):
        findings.append((Rule.ONE_CURRENT, f"it is {row.state}, and its id was given to a new instance"))
    findings += _check_end(row, reading, tables.payloads)
    findings += check_deadline(row, [*reading.events, *inbox])
    findings += check_payloads(reading, tables.payloads)
    for event in inbox:
        for payload in payloads_of(event):
            findings += check_payload(payload, tables.payloads, "a message in the inbox")
    findings += _check_inputs(tables)
    own = [attempt for attempt in tables.attempts if attempt.execution == row.execution]
    findings += check_attempts(
        own,
        reading,
        [event for event in inbox if isinstance(event, Answer)],
        tables.payloads,
        is_open=_is_open(row),
        yielded=[event for event in inbox if isinstance(event, ev.ActivityYielded)],
    )
    findings += check_flow(row, reading, own, inbox, tables.flow)
    findings += check_updates(tables.turns, tables.updates, inbox, tables.payloads, is_open=_is_open(row))
    findings += _check_family(tables, inbox)
    findings += _check_pending(tables) if not _is_open(row) else _check_timers(tables, reading)
    return findings + _check_owner(tables, workers)


def _input_payload(stored: bytes) -> Payload:
    """An input as an event would carry it."""
    reference = reference_of(stored)
    return Payload(reference=reference) if reference else Payload(msgspec.Raw(stored))


def _check_inputs(tables: InstanceTables) -> list[Finding]:
    """Large inputs are named by their reference, as other payloads are."""
    findings = check_payload(_input_payload(tables.row.input), tables.payloads, "its input")
    for attempt in tables.attempts:
        findings += check_payload(_input_payload(attempt.input), tables.payloads, f"the input of {shown(attempt)}")
    return findings


def _is_open(row: RawInstance) -> bool:
    return row.state not in INSTANCE_FINAL


def _check_executions(tables: InstanceTables) -> list[Finding]:
    """Rows of executions that the instance does not have."""
    executions = {turn.execution for turn in tables.turns} | {attempt.execution for attempt in tables.attempts}
    executions |= {message.execution for message in tables.messages} | {timer.execution for timer in tables.timers}
    strangers = sorted(executions - set(range(1, tables.row.execution + 1)))
    return [
        (Rule.ROWS_BELONG, f"it has rows of execution {stranger}, and is at {tables.row.execution}")
        for stranger in strangers
    ]


def _read_inbox(messages: Sequence[RawMessage]) -> tuple[list[HistoryEvent], list[Finding]]:
    events: list[HistoryEvent] = []
    findings: list[Finding] = []
    for message in messages:
        try:
            events.append(decode_event(message.event))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            findings.append((Rule.EVENTS_READABLE, f"message {message.row} cannot be decoded: {error}"))
    return events, findings


def _check_turn(row: RawInstance, tables: InstanceTables) -> list[Finding]:
    count = sum(turn.execution == row.execution for turn in tables.turns)
    if row.turn == count:
        return []
    return [(Rule.HISTORY_GAP_FREE, f"it says that {row.turn} turns were taken, and the history has {count}")]


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
        given, stored = started.input, _input_payload(row.input)
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


def _check_family(tables: InstanceTables, inbox: list[HistoryEvent]) -> list[Finding]:
    """The children of every execution. Most instances have none, and no look at their histories is needed."""
    findings: list[Finding] = []
    for execution in range(1, tables.row.execution + 1):
        turns = [turn for turn in tables.turns if turn.execution == execution]
        own = [child for child in tables.children if child.parent_execution == execution]
        if own or any(b'"child_scheduled"' in turn.events for turn in turns):
            is_last = execution == tables.row.execution
            findings += check_children(
                execution,
                read_history(turns, execution),
                own,
                inbox if is_last else [],
                is_active=is_last and _is_open(tables.row),
                is_closing=execution in tables.closings,
            )
    return findings


def _check_end(row: RawInstance, reading: HistoryReading, payloads: dict[str, bytes]) -> list[Finding]:
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


def _check_stored_outcome(row: RawInstance, terminal: Terminal, payloads: dict[str, bytes]) -> list[Finding]:
    try:
        stored = _payload.decode(row.outcome or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [(Rule.TERMINAL_LAST, f"its outcome cannot be decoded: {error}")]
    findings = check_payload(stored, payloads, "its outcome")
    if data_of(stored, payloads) != _recorded_outcome(terminal, payloads):
        findings.append((Rule.TERMINAL_LAST, "its outcome is not the one that its history ends with"))
    return findings


def _recorded_outcome(terminal: Terminal, payloads: dict[str, bytes]) -> bytes | None:
    match terminal:
        case ev.WorkflowCompleted():
            return data_of(terminal.result, payloads)
        case ev.WorkflowFailed() | ev.DeadlinePassed():
            return data_of(terminal.failure, payloads)
        case ev.WorkflowTerminated() | ev.WorkflowCancelled() | ev.InstanceCancelled():
            return msgspec.json.encode(terminal.reason or None)
        case ev.ContinuedAsNew():
            return None


def _check_pending(tables: InstanceTables) -> list[Finding]:
    """C5: a closed instance left nothing behind that waits or runs, except bodies that were told to stop."""
    state = tables.row.state
    findings: list[Finding] = []
    if tables.messages:
        findings.append((Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.messages)} messages in its inbox"))
    if tables.timers:
        findings.append((Rule.NOTHING_PENDING, f"it is {state} and has {len(tables.timers)} timers"))
    findings += [
        (Rule.NOTHING_PENDING, f"it is {state}, and {shown(attempt)} is {attempt.state}")
        for attempt in tables.attempts
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


def _check_owner(tables: InstanceTables, workers: Container[str]) -> list[Finding]:
    row = tables.row
    findings: list[Finding] = []
    if row.owner is not None and row.owner not in workers:
        findings.append((Rule.OWNERS_KNOWN, f"its owner {row.owner!r} is no known worker"))
    findings += [
        (Rule.OWNERS_KNOWN, f"{shown(attempt)} is owned by {attempt.owner!r}, which is no known worker")
        for attempt in tables.attempts
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
