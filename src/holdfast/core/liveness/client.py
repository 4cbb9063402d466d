"""The worker's side of its lease: one heartbeat at a time, nothing lost with a reply, self-fencing (W3-W5, W7, W9).

A heartbeat carries what changed since the last one. A lost reply leaves open whether the store took the beat, so the
client remembers what the store *surely* has and what it *possibly* has, and the next beat mends either case.

Times here are the worker's own monotonic clock and are only ever compared with each other. The lease is counted from
the *sending* of the last accepted heartbeat, so a worker stops acting no later than the store may give its work away.
"""

from enum import Enum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from holdfast.core.liveness.lease import (
    AttemptId,
    Heartbeat,
    HeartbeatReply,
    Renewed,
    TokenMismatch,
    WorkerInactive,
    WorkerKey,
)
from holdfast.errors import LeaseError

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


def send(client: LeaseState, *, now_ms: int) -> tuple[LeaseState, Heartbeat]:
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


def lose_reply(client: LeaseState) -> LeaseState:
    """No reply will come; the store may or may not have taken the beat."""
    sent = _in_flight(client)
    return replace(
        client,
        in_flight=None,
        reply_was_lost=True,
        store_surely_has=client.store_surely_has & sent.held,
        store_possibly_has=client.store_possibly_has | sent.held,
    )


def receive(client: LeaseState, reply: HeartbeatReply) -> tuple[LeaseState, LeaseAction]:
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


def may_act(client: LeaseState, *, now_ms: int) -> bool:
    """W7: whether the worker may still act in its name, by its own clock."""
    return client.fenced_at_ms is not None and now_ms < client.fenced_at_ms


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
