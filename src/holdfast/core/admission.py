"""Admission: whether a start, a message or an event is accepted, and the order in which a turn applies them.

Id policies (G3), delivery (G5), events and mailbox (G6, G7), order of messages and timers (G10). Every function decides
over its arguments alone: the owner of the event loop, the contents of the inbox and the time are parameters.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState


class MessageKind(StrEnum):
    """The kinds of messages that an instance receives."""

    START = "start"
    COMPLETION = "completion"
    TIMER = "timer"
    EVENT = "event"
    CHILD_RESULT = "child_result"
    CANCEL = "cancel"
    UPDATE = "update"


class DeliveryVerdict(Enum):
    """G5: what happens to a message. A kept message stays in the durable inbox; nothing is enqueued again."""

    DELIVER = "deliver to the active loop"
    KEEP_AND_WAKE = "keep; the instance becomes claimable"
    KEEP = "keep; the instance is not claimable"
    DROP = "drop; it can never be delivered"


_ADDRESSED_TO_ONE_EXECUTION: Final = frozenset({MessageKind.COMPLETION, MessageKind.TIMER, MessageKind.CHILD_RESULT})
_NOT_RUNNING: Final = frozenset({InstanceState.PAUSED, InstanceState.BLOCKED})


def decide_delivery(
    kind: MessageKind | str,
    *,
    state: InstanceState | str,
    loop_is_active: bool,
    addressed_to: int,
    execution: int,
) -> DeliveryVerdict:
    """Decide whether a message is delivered now (G4, G5, G7).

    Completions, timers and child results belong to the execution that requested them; other messages go to the latest.
    A cancel does not wake a paused instance directly: it moves it to CANCEL_REQUESTED (A9), which is claimable.
    """
    kind = parse_enum(MessageKind, kind, "kind of message")
    state = parse_enum(InstanceState, state, "state of an instance")
    if state in INSTANCE_FINAL:
        return DeliveryVerdict.DROP
    if kind in _ADDRESSED_TO_ONE_EXECUTION and addressed_to != execution:
        return DeliveryVerdict.DROP
    if state in _NOT_RUNNING:
        return DeliveryVerdict.KEEP
    return DeliveryVerdict.DELIVER if loop_is_active else DeliveryVerdict.KEEP_AND_WAKE


class IdPolicy(StrEnum):
    """G3: the effect of starting an id that exists."""

    IDEMPOTENT = "idempotent"
    REUSE = "reuse"
    TERMINATE_EXISTING = "terminate_existing"


IdPolicyOption = IdPolicy | Literal["idempotent", "reuse", "terminate_existing"]
"""A policy as an argument of the public API."""


class StartVerdict(Enum):
    """G3: the effect of a start."""

    CREATE = "create the instance"
    SAME = "it is the instance that exists"
    CONFLICT = "the id is taken by something else"
    REPLACE = "terminate the one that exists, then create"


class StartIdentity(msgspec.Struct, frozen=True):
    """Two starts of one id are the same if workflow and hash of the first execution's input are equal."""

    workflow: str
    input_hash: bytes


class ExistingInstance(msgspec.Struct, frozen=True):
    """The instance that already has the id."""

    identity: StartIdentity
    state: InstanceState | str


def decide_start(
    request: StartIdentity, existing: ExistingInstance | None, policy: IdPolicy | str = IdPolicy.IDEMPOTENT
) -> StartVerdict:
    """Decide about a start, given the newest instance of its id, if there is one (G3)."""
    policy = parse_enum(IdPolicy, policy, "policy for ids")
    if existing is None:
        return StartVerdict.CREATE
    closed = parse_enum(InstanceState, existing.state, "state of an instance") in INSTANCE_FINAL
    if policy is IdPolicy.REUSE and closed:
        return StartVerdict.CREATE
    if policy is IdPolicy.TERMINATE_EXISTING:
        return StartVerdict.CREATE if closed else StartVerdict.REPLACE
    return StartVerdict.SAME if request == existing.identity else StartVerdict.CONFLICT


def decide_child_start(existing: InstanceState | str | None, policy: IdPolicy | str) -> StartVerdict:
    """Decide about the start of a child with a chosen id, given the state of the newest instance of the id (G3).

    A child belongs to one step of its parent, so that an instance which exists is never the child itself.
    """
    policy = parse_enum(IdPolicy, policy, "policy for ids")
    if existing is None:
        return StartVerdict.CREATE
    if policy is IdPolicy.IDEMPOTENT:
        return StartVerdict.CONFLICT
    if parse_enum(InstanceState, existing, "state of an instance") in INSTANCE_FINAL:
        return StartVerdict.CREATE
    return StartVerdict.REPLACE if policy is IdPolicy.TERMINATE_EXISTING else StartVerdict.CONFLICT


class EventPolicy(StrEnum):
    """G6: whether an event without a wait for it is kept or dropped."""

    MAILBOX = "mailbox"
    DROP_UNSUBSCRIBED = "drop_unsubscribed"


EventPolicyOption = EventPolicy | Literal["mailbox", "drop_unsubscribed"]
"""A policy as an argument of the public API."""


class EventVerdict(Enum):
    """G6, G7: the verdict on a raised event or a sent update."""

    DELIVER = "delivered to the wait"
    KEEP = "kept in the mailbox"
    DROP_UNSUBSCRIBED = "dropped with a warning: no wait for it"
    DUPLICATE = "delivered before, by the same id"
    MAILBOX_FULL = "refused: the mailbox is full"
    CLOSED = "refused: the instance is finished"
    UNKNOWN = "refused: there is no such instance"
    CONFLICT = "refused: its id belongs to another message"


DEFAULT_MAILBOX_LIMIT: Final = 100_000


class Mailbox(NamedTuple):
    """G6: the policy for events without a wait, and the largest number that is kept."""

    policy: EventPolicy = EventPolicy.MAILBOX
    limit: int = DEFAULT_MAILBOX_LIMIT


def decide_event(
    state: InstanceState | str | None,
    *,
    seen_before: bool,
    is_awaited: bool,
    kept: int,
    policy: EventPolicy | str = EventPolicy.MAILBOX,
    limit: int = DEFAULT_MAILBOX_LIMIT,
) -> EventVerdict:
    """Decide about an event for the latest execution of an instance (G6, G7). `state` None: no such instance.

    `seen_before`: an event with this id was delivered or kept; one that was dropped or refused may be raised again.
    `is_awaited`: the latest execution has a wait for this name. `kept`: the number of events in the mailbox.
    """
    policy = parse_enum(EventPolicy, policy, "policy for events")
    if state is None:
        return EventVerdict.UNKNOWN
    state = parse_enum(InstanceState, state, "state of an instance")
    if seen_before:
        return EventVerdict.DUPLICATE
    if state in INSTANCE_FINAL:
        return EventVerdict.CLOSED
    if is_awaited and state not in _NOT_RUNNING:
        return EventVerdict.DELIVER
    if not is_awaited and policy is EventPolicy.DROP_UNSUBSCRIBED:
        return EventVerdict.DROP_UNSUBSCRIBED
    return EventVerdict.KEEP if kept < limit else EventVerdict.MAILBOX_FULL


class Arrival(msgspec.Struct, frozen=True):
    """A message in the inbox. Row ids grow in arrival order; stamps never decrease."""

    row_id: int
    stamp_ms: int


class PendingTimer(msgspec.Struct, frozen=True):
    """A timer of the instance. The number is the order in which the code started it."""

    number: int
    due_at_ms: int


class OrderedItem(msgspec.Struct, frozen=True):
    """An item that a turn applies, with the time of the workflow's event loop while it does."""

    item: Arrival | PendingTimer
    time_ms: int


def stamp_ms(previous_ms: int, now_ms: int) -> int:
    """G10: the stamp of a message that arrives now."""
    return max(previous_ms, now_ms)


def apply_order(
    arrivals: Sequence[Arrival], timers: Iterable[PendingTimer], *, previous_ms: int, now_ms: int
) -> tuple[OrderedItem, ...]:
    """Merge due timers into the messages (G10). The time of an item is its stamp or due time, and never decreases.

    A timer precedes the first message stamped at or after its due time, so that a downtime does not change the order.
    A timer that is not due yet is left out: timers fire late, never early.
    """
    due = sorted((timer for timer in timers if timer.due_at_ms <= now_ms), key=lambda t: (t.due_at_ms, t.number))
    merged: list[OrderedItem] = []
    clock = previous_ms
    next_timer = 0

    def fire_until(limit_ms: int) -> None:
        nonlocal clock, next_timer
        while next_timer < len(due) and due[next_timer].due_at_ms <= limit_ms:
            clock = max(clock, due[next_timer].due_at_ms)
            merged.append(OrderedItem(due[next_timer], clock))
            next_timer += 1

    for arrival in arrivals:
        fire_until(arrival.stamp_ms)
        clock = max(clock, arrival.stamp_ms)
        merged.append(OrderedItem(arrival, clock))
    fire_until(now_ms)
    return tuple(merged)
