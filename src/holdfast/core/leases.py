"""Worker leases (W1-W9): pure decisions of the store, and the state that a worker keeps of its own lease.

The store's side: `judge_heartbeat` returns the record to store and the reply. Times are the store's; clocks of workers
do not count. A refusal leaves the record unchanged. A dead worker stays as a tombstone: its key is never revived.

The worker's side: `LeaseState` allows one heartbeat at a time. A heartbeat carries the changes since the last one. A
lost reply leaves open whether the store accepted the heartbeat, so the worker tracks the attempts that the store
*surely* has and those that it *possibly* has, and the next heartbeat corrects both. Times are those of the worker's
monotonic clock. The lease counts from the *sending* of the last accepted heartbeat, so a worker stops acting no later
than the store may give its work to others (W7).
"""

from collections.abc import Collection, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NewType, assert_never

import msgspec
from msgspec.structs import replace

from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.errors import LeaseError

WorkerKey = NewType("WorkerKey", str)
AttemptId = NewType("AttemptId", str)

DEFAULT_LEASE_MS: Final = 60_000
"""W1: the lease of a heartbeat that names none."""
WORKER_LEASE_MS: Final = 8_000
"""W1: the lease that Holdfast's own workers request."""
LOOP_TIMEOUT_MS: Final = 300_000
"""W1: a worker whose event loop has not run for this long gives up its lease."""
SHORTEST_LOOP_TIMEOUT_MS: Final = 1_000
SHORTEST_LEASE_MS: Final = 1_000
LONGEST_LEASE_MS: Final = 3_600_000
FIRST_TOKEN: Final = 1


class WorkerState(StrEnum):
    """The state of a worker. INACTIVE is final: other workers have its work."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"


class WorkerRecord(msgspec.Struct, frozen=True):
    """The lease of a worker in the store."""

    key: WorkerKey
    state: WorkerState
    token: int
    deadline_ms: int
    bound: frozenset[AttemptId] = frozenset()


class Heartbeat(msgspec.Struct, frozen=True):
    """A heartbeat: the token of the last reply, the requested lease, and the changes since then."""

    key: WorkerKey
    token: int | str | None = None
    lease_ms: int | None = None
    bind: tuple[AttemptId, ...] = ()
    unbind: tuple[AttemptId, ...] = ()


class Renewed(msgspec.Struct, frozen=True):
    """The lease is renewed. Attempts in `rejected` belong to other workers and must be abandoned (W3)."""

    token: int
    deadline_ms: int
    lease_ms: int
    rejected: tuple[AttemptId, ...] = ()


class TokenMismatch(msgspec.Struct, frozen=True):
    """The token is not the current one, which the reply contains. Nothing was changed (W4)."""

    current_token: int


class WorkerInactive(msgspec.Struct, frozen=True):
    """The key is dead or unknown: the worker takes a new one (W5)."""


HeartbeatReply = Renewed | TokenMismatch | WorkerInactive


def judge_heartbeat(
    record: WorkerRecord | None,
    beat: Heartbeat,
    *,
    now_ms: int,
    owned_elsewhere: Collection[AttemptId] = (),
) -> tuple[WorkerRecord | None, HeartbeatReply]:
    """Decide about a heartbeat: checks the state first, then the token, then the request (W2)."""
    if record is None:
        if beat.token is not None:
            return None, WorkerInactive()
        record = WorkerRecord(beat.key, WorkerState.ACTIVE, FIRST_TOKEN - 1, now_ms)
    elif record.key != beat.key:
        raise LeaseError(f"a heartbeat of worker {beat.key} was compared with the record of {record.key}")
    elif record.state == WorkerState.INACTIVE:
        return record, WorkerInactive()
    elif type(beat.token) is not int or beat.token != record.token:
        return record, TokenMismatch(record.token)
    lease_ms = granted_lease_ms(beat.lease_ms)
    requested = record.bound.union(beat.bind)
    rejected = tuple(sorted(requested.intersection(owned_elsewhere)))
    bound = requested.difference(rejected, beat.unbind)
    renewed = replace(record, token=record.token + 1, deadline_ms=now_ms + lease_ms, bound=bound)
    return renewed, Renewed(renewed.token, renewed.deadline_ms, lease_ms, rejected)


def granted_lease_ms(asked_ms: int | None) -> int:
    """The lease for a request: the default if it names none, else clamped to the allowed range (W1)."""
    if asked_ms is None:
        return DEFAULT_LEASE_MS
    if asked_ms <= 0:
        raise LeaseError(f"a lease must be longer than 0 ms, not {asked_ms} ms")
    return min(max(asked_ms, SHORTEST_LEASE_MS), LONGEST_LEASE_MS)


LOSS_EVENT: Final[Mapping[AttemptState, AttemptEvent]] = MappingProxyType(
    {
        AttemptState.QUEUED: AttemptEvent.RELEASE,
        AttemptState.PREPARING: AttemptEvent.RELEASE,
        AttemptState.RUNNING: AttemptEvent.EXPIRE,
        AttemptState.CANCELLED_RUNNING: AttemptEvent.STOPPED,
    }
)
"""W6: the event of an attempt whose worker is lost. In the states that are not listed, an attempt has no worker."""


Attempts = frozenset[AttemptId]


class HeartbeatInFlight(msgspec.Struct, frozen=True):
    """The heartbeat whose reply is awaited: the time of sending, and the attempts that the worker held then."""

    sent_at_ms: int
    held: Attempts


class LeaseState(msgspec.Struct, frozen=True):
    """The state that a worker keeps of its own lease."""

    key: WorkerKey
    lease_ms: int
    token: int | None = None
    held: Attempts = frozenset()
    store_surely_has: Attempts = frozenset()
    store_possibly_has: Attempts = frozenset()
    in_flight: HeartbeatInFlight | None = None
    reply_was_lost: bool = False
    fenced_at_ms: int | None = None
    """The time at which this worker must stop acting; None before its first accepted heartbeat."""


class LeaseAction(Enum):
    """What the worker does after a reply."""

    GO_ON = "go on"
    TAKE_NEW_KEY = "take a new key"


def bind(client: LeaseState, attempt: AttemptId) -> LeaseState:
    """Add an attempt of this worker to its next heartbeat."""
    return replace(client, held=client.held | {attempt})


def unbind(client: LeaseState, attempt: AttemptId) -> LeaseState:
    """Remove an attempt of this worker with its next heartbeat."""
    return replace(client, held=client.held - {attempt})


def next_heartbeat(client: LeaseState, *, now_ms: int) -> tuple[LeaseState, Heartbeat]:
    """The next heartbeat. Raises `LeaseError` while the reply to the last one is awaited (W9)."""
    if client.in_flight is not None:
        raise LeaseError(f"worker {client.key} awaits the reply to a heartbeat; it sends one at a time")
    beat = Heartbeat(
        client.key,
        client.token,
        client.lease_ms,
        bind=tuple(sorted(client.held - client.store_surely_has)),
        unbind=tuple(sorted(client.store_possibly_has - client.held)),
    )
    return replace(client, in_flight=HeartbeatInFlight(now_ms, client.held)), beat


def note_lost_reply(client: LeaseState) -> LeaseState:
    """Note that no reply will arrive: the store may have accepted the heartbeat, or not."""
    sent = _in_flight(client)
    return replace(
        client,
        in_flight=None,
        reply_was_lost=True,
        store_surely_has=client.store_surely_has & sent.held,
        store_possibly_has=client.store_possibly_has | sent.held,
    )


def apply_reply(client: LeaseState, reply: HeartbeatReply) -> tuple[LeaseState, LeaseAction]:
    """The state after the reply to the heartbeat in flight, and the action that it requires."""
    sent = _in_flight(client)
    answered = replace(client, in_flight=None)
    match reply:
        case Renewed():
            return _renewed(answered, sent, reply), LeaseAction.GO_ON
        case TokenMismatch(current_token):
            # One lost reply explains exactly one step of the token; otherwise another process uses the key (W4).
            if not client.reply_was_lost or current_token != (client.token or 0) + 1:
                return answered, LeaseAction.TAKE_NEW_KEY
            return replace(answered, token=current_token, reply_was_lost=False), LeaseAction.GO_ON
        case WorkerInactive():
            return answered, LeaseAction.TAKE_NEW_KEY
        case _:
            assert_never(reply)


def _renewed(client: LeaseState, sent: HeartbeatInFlight, reply: Renewed) -> LeaseState:
    accepted = sent.held.difference(reply.rejected)
    return replace(
        client,
        token=reply.token,
        held=client.held.difference(reply.rejected),
        store_surely_has=accepted,
        store_possibly_has=accepted,
        reply_was_lost=False,
        fenced_at_ms=sent.sent_at_ms + reply.lease_ms,
    )


def _in_flight(client: LeaseState) -> HeartbeatInFlight:
    if client.in_flight is None:
        raise LeaseError(f"worker {client.key} has no heartbeat in flight")
    return client.in_flight


MAX_LOST_OWNERS: Final = 3
"""G12: an instance that lost this many owners without a turn in between is blocked."""
SUSPECT_AFTER: Final = MAX_LOST_OWNERS - 1
"""G12: an instance that lost this many owners is claimed alone, so that the next loss is its own. SQL repeats it."""
TOOK_DOWN_ITS_OWNERS: Final = (
    f"its turn took down {MAX_LOST_OWNERS} owners in a row: each of these workers died, or hung, while it ran this code"
)
