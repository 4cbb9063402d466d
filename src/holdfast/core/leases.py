"""The store's side of worker liveness: a lease as a pure state machine (W1-W6).

Time comes in as an argument and is the store's; clocks of workers never count. Every function gives the record to
keep and what to answer; a refusal gives the record unchanged. A dead worker stays as a tombstone: its key is never
revived. The worker's own side is `client`.

The worker's side of its lease: one heartbeat at a time, nothing lost with a reply, self-fencing (W3-W5, W7, W9).

A heartbeat carries what changed since the last one. A lost reply leaves open whether the store took the beat, so the
client remembers what the store *surely* has and what it *possibly* has, and the next beat mends either case.

Times here are the worker's own monotonic clock and are only ever compared with each other. The lease is counted from
the *sending* of the last accepted heartbeat, so a worker stops acting no later than the store may give its work away.

Worker liveness by leases (W1-W9): `lease` is what the store decides, `client` what the worker knows and does.
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
"""W1: what a heartbeat that names no lease gets."""
WORKER_LEASE_MS: Final = 8_000
"""W1: what Holdfast's own workers ask for."""
LOOP_TIMEOUT_MS: Final = 300_000
"""W1: after so long without a run of its event loop, a worker gives up its lease."""
SHORTEST_LOOP_TIMEOUT_MS: Final = 1_000
SHORTEST_LEASE_MS: Final = 1_000
LONGEST_LEASE_MS: Final = 3_600_000
FIRST_TOKEN: Final = 1


class WorkerState(StrEnum):
    """INACTIVE is final: activities have moved on, so there would be nothing to come back to."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"


class WorkerRecord(msgspec.Struct, frozen=True):
    """What the store knows of a worker."""

    key: WorkerKey
    state: WorkerState
    token: int
    deadline_ms: int
    bound: frozenset[AttemptId] = frozenset()


class Heartbeat(msgspec.Struct, frozen=True):
    """One beat: the token of the last answer, the lease wished for, and what changed since."""

    key: WorkerKey
    token: int | str | None = None
    lease_ms: int | None = None
    bind: tuple[AttemptId, ...] = ()
    unbind: tuple[AttemptId, ...] = ()


class Renewed(msgspec.Struct, frozen=True):
    """The lease runs on. Attempts in `rejected` are somebody else's and must be abandoned (W3)."""

    token: int
    deadline_ms: int
    lease_ms: int
    rejected: tuple[AttemptId, ...] = ()


class TokenMismatch(msgspec.Struct, frozen=True):
    """The token was not the current one, which is here. Nothing was changed (W4)."""

    current_token: int


class WorkerInactive(msgspec.Struct, frozen=True):
    """The key is dead, or never was: take a new one (W5)."""


HeartbeatReply = Renewed | TokenMismatch | WorkerInactive


def judge_heartbeat(
    record: WorkerRecord | None,
    beat: Heartbeat,
    *,
    now_ms: int,
    owned_elsewhere: Collection[AttemptId] = (),
) -> tuple[WorkerRecord | None, HeartbeatReply]:
    """Judge one heartbeat. State is checked first, then the token, then what it asks for (W2)."""
    if record is None:
        if beat.token is not None:
            return None, WorkerInactive()
        record = WorkerRecord(beat.key, WorkerState.ACTIVE, FIRST_TOKEN - 1, now_ms)
    elif record.key != beat.key:
        raise LeaseError(f"a heartbeat of worker {beat.key} was held against the record of {record.key}")
    elif record.state == WorkerState.INACTIVE:
        return record, WorkerInactive()
    elif type(beat.token) is not int or beat.token != record.token:
        return record, TokenMismatch(record.token)
    lease_ms = granted_lease_ms(beat.lease_ms)
    wished = record.bound.union(beat.bind)
    rejected = tuple(sorted(wished.intersection(owned_elsewhere)))
    bound = wished.difference(rejected, beat.unbind)
    renewed = replace(record, token=record.token + 1, deadline_ms=now_ms + lease_ms, bound=bound)
    return renewed, Renewed(renewed.token, renewed.deadline_ms, lease_ms, rejected)


def granted_lease_ms(asked_ms: int | None) -> int:
    """W1: the default where none is named; clamped to the range; nothing at or below zero."""
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
"""W6: what the loss of its worker does to an attempt. Whatever is not here has no worker to lose."""


Attempts = frozenset[AttemptId]


class HeartbeatInFlight(msgspec.Struct, frozen=True):
    """The heartbeat whose reply is awaited: when it was sent, and what the worker held then."""

    sent_at_ms: int
    held: Attempts


class LeaseState(msgspec.Struct, frozen=True):
    """What a worker knows of its own lease."""

    key: WorkerKey
    lease_ms: int
    token: int | None = None
    held: Attempts = frozenset()
    store_surely_has: Attempts = frozenset()
    store_possibly_has: Attempts = frozenset()
    in_flight: HeartbeatInFlight | None = None
    reply_was_lost: bool = False
    fenced_at_ms: int | None = None
    """When this worker must stop acting, or None before its first accepted heartbeat."""


class LeaseAction(Enum):
    """What the reply asks of the worker."""

    GO_ON = "go on"
    TAKE_NEW_KEY = "take a new key"


def bind(client: LeaseState, attempt: AttemptId) -> LeaseState:
    """The worker has this attempt now; the next heartbeat says so."""
    return replace(client, held=client.held | {attempt})


def unbind(client: LeaseState, attempt: AttemptId) -> LeaseState:
    """The worker is done with this attempt; the next heartbeat says so."""
    return replace(client, held=client.held - {attempt})


def next_heartbeat(client: LeaseState, *, now_ms: int) -> tuple[LeaseState, Heartbeat]:
    """The next heartbeat. A second one before the reply, or `lose_reply`, is an error (W9)."""
    if client.in_flight is not None:
        raise LeaseError(f"worker {client.key} waits for the reply to a heartbeat; it sends one at a time")
    beat = Heartbeat(
        client.key,
        client.token,
        client.lease_ms,
        bind=tuple(sorted(client.held - client.store_surely_has)),
        unbind=tuple(sorted(client.store_possibly_has - client.held)),
    )
    return replace(client, in_flight=HeartbeatInFlight(now_ms, client.held)), beat


def note_lost_reply(client: LeaseState) -> LeaseState:
    """No reply will come; the store may or may not have taken the beat."""
    sent = _in_flight(client)
    return replace(
        client,
        in_flight=None,
        reply_was_lost=True,
        store_surely_has=client.store_surely_has & sent.held,
        store_possibly_has=client.store_possibly_has | sent.held,
    )


def apply_reply(client: LeaseState, reply: HeartbeatReply) -> tuple[LeaseState, LeaseAction]:
    """Take in the reply to the heartbeat in flight."""
    sent = _in_flight(client)
    answered = replace(client, in_flight=None)
    match reply:
        case Renewed():
            return _renewed(answered, sent, reply), LeaseAction.GO_ON
        case TokenMismatch(current_token):
            # A lost reply explains exactly one step of the token. Anything else: someone else has the key (W4).
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
"""G12: an instance whose code has taken down so many owners, without a turn between, is parked."""
SUSPECT_AFTER: Final = MAX_LOST_OWNERS - 1
"""G12: what so many in a row were lost with is claimed alone, so that the next loss is its own. SQL has it, too."""
TOOK_DOWN_ITS_OWNERS: Final = (
    f"its turn took down {MAX_LOST_OWNERS} owners in a row: each of these workers died, or hung, while it ran this code"
)
