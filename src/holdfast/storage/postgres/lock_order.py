"""The rows that a group locks, and their order: instances by number, then workers by key, then attempts.

PostgreSQL runs many groups concurrently. Two groups that name the same instances do not deadlock if both lock them
first and in the same order. An instance that a group may end is locked together with its parent, which gets its answer,
and with its open children. A group that ends the lease of a worker locks a batch of the instances of that worker
together with the others. Rows that are reached in another way are locked where they are read; then a deadlock is
possible, and PostgreSQL aborts one of the two groups, which is retried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never, cast

from holdfast.core.history import EventReceived
from holdfast.storage.members.attempts import ClaimAttempts, Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Release,
    SaveFlow,
    SetDeadline,
    Start,
    Terminate,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, Deliver
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown


@dataclass(slots=True)
class LockSet:
    """The rows that the members of a group name."""

    numbers: set[int] = field(default_factory=set[int])
    ids: set[str] = field(default_factory=set[str])
    ending: set[int] = field(default_factory=set[int])
    """The instances that may end: their parents and children are locked, too."""
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """Lost workers, each with the number of rows that are released now."""
    actors: set[str] = field(default_factory=set[str])
    """Workers in whose name the group acts, if it ends the lease of another one."""


def lock_set_of(members: Sequence[Member]) -> LockSet:
    """The lock set of a group."""
    named = LockSet()
    for member in members:
        _note(named, member)
    if named.lost:
        named.actors.update(member.actor for member in members if member.actor is not None)
    return named


def apply_order(members: Sequence[Member]) -> list[int]:
    """The positions of the members in the order in which they are applied: starts first, by their ids.

    Two transactions that insert the same ids in different orders would deadlock. Members of one group were submitted
    concurrently, so any order is correct; all other members keep theirs.
    """
    starts = [at for at, member in enumerate(members) if isinstance(member, Start)]
    if not starts:
        return list(range(len(members)))
    starts.sort(key=lambda at: cast("Start", members[at]).id)
    return [*starts, *(at for at, member in enumerate(members) if not isinstance(member, Start))]


def _note(named: LockSet, member: Member) -> None:
    match member:
        case Turn():
            named.numbers.add(member.number)
            _note_turn(named, member)
        case Start():
            named.ids.add(member.id)
            if member.first is not None:
                _note_turn(named, member.first)
        case Completion() | StreamValues():
            named.numbers.add(member.key.number)
        case OpenNextAttempt():
            named.numbers.add(member.ended.key.number)
        case Release() | Block() | SetDeadline():
            named.numbers.add(member.number)
        case Expire() | CloseChildren():
            _note_target(named, "", member.number, may_end=True)
        case Terminate():
            _note_target(named, member.id, member.number, may_end=True)
        case Deliver():
            _note_message(named, member)
        case MarkWorkerLost() | ReleaseUnknown():
            _note_loss(named, member)
        case (
            ClaimInstances()
            | ClaimAttempts()
            | HeartbeatAttempt()
            | SaveFlow()
            | AskQuery()
            | ClaimQueries()
            | AnswerQuery()
            | DeleteQueries()
        ):
            pass
        case _:
            assert_never(member)


def _note_loss(named: LockSet, loss: MarkWorkerLost | ReleaseUnknown) -> None:
    if isinstance(loss, ReleaseUnknown):
        named.numbers.update(owned.number for owned in loss.instances)
        named.numbers.update(owned.key.number for owned in loss.attempts)
        return
    named.lost[loss.key] = loss.limit
    if loss.culprit is not None:
        named.numbers.add(loss.culprit)


def _note_turn(named: LockSet, turn: Turn) -> None:
    effects = turn.effects
    if effects is None:
        return
    if (effects.has_relatives or effects.changes_children) and turn.number:
        named.ending.add(turn.number)
    for message in effects.sent:
        _note_message(named, message)


def _note_message(named: LockSet, message: Deliver) -> None:
    """An event ends no instance; a request to cancel ends an instance that has not begun."""
    _note_target(named, message.id, message.number, may_end=not isinstance(message.event, EventReceived))


def _note_target(named: LockSet, instance_id: str, number: int | None, *, may_end: bool) -> None:
    if number is None:
        named.ids.add(instance_id)
    else:
        named.numbers.add(number)
        if may_end:
            named.ending.add(number)
