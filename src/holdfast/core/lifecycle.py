"""The life cycles of attempts and instances: one table each, and nothing else changes a state (A1, A8, A9).

An attempt is one try of an activity. A retry, or a reschedule after its worker died, ends that attempt and opens the
next one with a fresh ledger, so that final states have no outgoing edge and lost work is still retried. The diagrams in
``docs/reference/lifecycle.md`` are drawn from these tables.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, overload

from holdfast.core import ledger
from holdfast.core.checks import parse_enum
from holdfast.errors import IllegalTransition, LedgerError


class AttemptState(StrEnum):
    """The state of an attempt of an activity."""

    REQUESTED = "REQUESTED"
    READY = "READY"
    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    CANCELLED_RUNNING = "CANCELLED_RUNNING"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"


class AttemptEvent(StrEnum):
    """The events that change the state of an attempt."""

    CANCEL = "cancel"
    READY = "ready"
    QUEUE = "queue"
    PREPARE = "prepare"
    RUN = "run"
    RELEASE = "release"
    FAIL = "fail"
    COMPLETE = "complete"
    STOPPED = "stopped"
    EXPIRE = "expire"


class InstanceState(StrEnum):
    """The state of an instance of a workflow."""

    REQUESTED = "REQUESTED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    BLOCKED = "BLOCKED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TERMINATED = "TERMINATED"


class InstanceEvent(StrEnum):
    """The events that change the state of an instance."""

    START = "start"
    CONTINUE_AS_NEW = "continue_as_new"
    PAUSE = "pause"
    RESUME = "resume"
    RESUME_REQUESTED = "resume_requested"
    BLOCK = "block"
    UNBLOCK = "unblock"
    REQUEST_CANCEL = "request_cancel"
    CANCEL = "cancel"
    COMPLETE = "complete"
    FAIL = "fail"
    TERMINATE = "terminate"


_A = AttemptState
_E = AttemptEvent

ATTEMPT_TABLE: Final[Mapping[AttemptState, Mapping[AttemptEvent, AttemptState]]] = MappingProxyType(
    {
        _A.REQUESTED: {
            _E.CANCEL: _A.CANCELLED,
            _E.READY: _A.READY,
            _E.QUEUE: _A.QUEUED,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.READY: {
            _E.CANCEL: _A.CANCELLED,
            _E.QUEUE: _A.QUEUED,
            _E.PREPARE: _A.PREPARING,
            _E.RUN: _A.RUNNING,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.QUEUED: {
            _E.CANCEL: _A.CANCELLED,
            _E.PREPARE: _A.PREPARING,
            _E.RUN: _A.RUNNING,
            _E.RELEASE: _A.READY,
            _E.FAIL: _A.FAILED,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.PREPARING: {
            _E.CANCEL: _A.CANCELLED,
            _E.RUN: _A.RUNNING,
            _E.RELEASE: _A.READY,
            _E.FAIL: _A.FAILED,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.RUNNING: {
            _E.CANCEL: _A.CANCELLED_RUNNING,
            _E.FAIL: _A.FAILED,
            _E.COMPLETE: _A.COMPLETED,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.CANCELLED_RUNNING: {
            _E.CANCEL: _A.CANCELLED_RUNNING,
            _E.FAIL: _A.FAILED,
            _E.COMPLETE: _A.COMPLETED,
            _E.STOPPED: _A.CANCELLED,
            _E.EXPIRE: _A.TIMED_OUT,
        },
        _A.CANCELLED: {},
        _A.TIMED_OUT: {},
        _A.FAILED: {},
        _A.COMPLETED: {},
    }
)
"""A1: an edge that is not listed is refused."""

_I = InstanceState
_V = InstanceEvent

INSTANCE_TABLE: Final[Mapping[InstanceState, Mapping[InstanceEvent, InstanceState]]] = MappingProxyType(
    {
        _I.REQUESTED: {
            _V.START: _I.RUNNING,
            _V.PAUSE: _I.PAUSED,
            _V.BLOCK: _I.BLOCKED,
            _V.CANCEL: _I.CANCELLED,
            _V.TERMINATE: _I.TERMINATED,
        },
        _I.RUNNING: {
            _V.CONTINUE_AS_NEW: _I.RUNNING,
            _V.PAUSE: _I.PAUSED,
            _V.BLOCK: _I.BLOCKED,
            _V.REQUEST_CANCEL: _I.CANCEL_REQUESTED,
            _V.COMPLETE: _I.COMPLETED,
            _V.FAIL: _I.FAILED,
            _V.TERMINATE: _I.TERMINATED,
        },
        _I.PAUSED: {
            _V.RESUME: _I.RUNNING,
            _V.RESUME_REQUESTED: _I.REQUESTED,
            _V.REQUEST_CANCEL: _I.CANCEL_REQUESTED,
            _V.TERMINATE: _I.TERMINATED,
        },
        _I.BLOCKED: {
            _V.UNBLOCK: _I.RUNNING,
            _V.CANCEL: _I.CANCELLED,
            _V.FAIL: _I.FAILED,
            _V.TERMINATE: _I.TERMINATED,
        },
        _I.CANCEL_REQUESTED: {
            _V.BLOCK: _I.BLOCKED,  # decision 12
            _V.CANCEL: _I.CANCELLED,
            _V.COMPLETE: _I.COMPLETED,
            _V.FAIL: _I.FAILED,
            _V.TERMINATE: _I.TERMINATED,
        },
        _I.COMPLETED: {},
        _I.FAILED: {},
        _I.CANCELLED: {},
        _I.TERMINATED: {},
    }
)
"""A9: an edge that is not listed is refused. A rewind makes a new record and is not an edge."""

ATTEMPT_FINAL: Final = frozenset(state for state, edges in ATTEMPT_TABLE.items() if not edges)
INSTANCE_FINAL: Final = frozenset(state for state, edges in INSTANCE_TABLE.items() if not edges)


@overload
def next_state(state: AttemptState, event: AttemptEvent) -> AttemptState: ...
@overload
def next_state(state: InstanceState, event: InstanceEvent) -> InstanceState: ...
def next_state(
    state: AttemptState | InstanceState, event: AttemptEvent | InstanceEvent
) -> AttemptState | InstanceState:
    """The state after `event`, or `IllegalTransition` if the table has no such edge (A1, A9)."""
    if isinstance(state, InstanceState) or isinstance(event, InstanceEvent):
        return next_instance_state(state, event)
    return next_attempt_state(state, event)


def next_attempt_state(state: AttemptState | str, event: AttemptEvent | str) -> AttemptState:
    """The state of an attempt after `event` (A1). Accepts plain strings, as a database driver returns them."""
    state = parse_enum(AttemptState, state, "state of an attempt")
    event = parse_enum(AttemptEvent, event, "event of an attempt")
    after = ATTEMPT_TABLE[state].get(event)
    if after is None:
        raise IllegalTransition(f"an attempt that is {state} has no transition '{event}'")
    return after


def next_instance_state(state: InstanceState | str, event: InstanceEvent | str) -> InstanceState:
    """The state of an instance after `event` (A9). Accepts plain strings, as a database driver returns them."""
    state = parse_enum(InstanceState, state, "state of an instance")
    event = parse_enum(InstanceEvent, event, "event of an instance")
    after = INSTANCE_TABLE[state].get(event)
    if after is None:
        raise IllegalTransition(f"an instance that is {state} has no transition '{event}'")
    return after


_WAITING: Final = frozenset({_A.REQUESTED, _A.READY})
_CLAIMED: Final = frozenset({_A.QUEUED, _A.PREPARING})
_EXECUTING: Final = frozenset({_A.RUNNING, _A.CANCELLED_RUNNING})


def disagreement(
    state: AttemptState | str, value: int, *, owned: bool, unapplied: int, external: bool = False
) -> str | None:
    """A8: why the ledger `value` contradicts `state`, or None if the two agree.

    `owned`: whether the row names a worker. `unapplied`: the attempt's responses in the instance's inbox. `external`:
    an executor that is not a worker has the attempt, from PREPARING on at the latest.
    """
    state = parse_enum(AttemptState, state, "state of an attempt")
    try:
        digits = ledger.read_ledger(value)
    except LedgerError as error:
        return str(error)
    shown = f"{state} with ledger {digits.text}"
    if digits.unapplied_responses != unapplied:
        return f"{shown}: the digits count {digits.unapplied_responses} unapplied responses, the inbox has {unapplied}"
    if state in _WAITING:
        if digits.leg1_concluded:
            return f"{shown}: leg 1 is concluded, but no executor has it"
        return f"{shown}: it waits, so no worker may own it" if owned else None
    if state in _CLAIMED:
        if digits.leg1_concluded or not digits.leg1_entries:
            return f"{shown}: leg 1 must be entered and not concluded"
        if external:
            return f"{shown}: it is external, so no worker may own it" if owned and state is not _A.QUEUED else None
        return None if owned else f"{shown}: it is claimed, so a worker must own it"
    if state in _EXECUTING:
        if not digits.leg1_concluded or digits.leg2_closed:
            return f"{shown}: leg 1 must be concluded and leg 2 open"
        if external:
            return f"{shown}: it is external, so no worker may own it" if owned else None
        return None if owned else f"{shown}: it executes, so a worker must own it"
    return _final_disagreement(state, digits, shown)


def _final_disagreement(state: AttemptState, digits: ledger.LedgerReading, shown: str) -> str | None:
    if state is _A.COMPLETED and not digits.leg1_concluded:
        return f"{shown}: an attempt completes only after an executor had it"
    if state is _A.COMPLETED and not digits.leg2_closed and not digits.unapplied_responses:
        return f"{shown}: its final response is neither applied nor in the inbox"
    if state is _A.FAILED and not digits.leg1_entries:
        return f"{shown}: an attempt fails only after it was claimed"
    if state is _A.TIMED_OUT and digits.leg2_closed:
        return f"{shown}: an attempt that timed out is not closed by a response"
    if digits.leg2_closed and digits.unapplied_responses:
        return f"{shown}: leg 2 is closed, but responses are not applied yet"
    return None
