"""The rows that a group locks, and their order: instances by number, then workers by key, then attempts.

PostgreSQL runs many groups concurrently. Two groups that name the same instances do not deadlock if both lock them
first and in the same order. An instance that a group may end is locked together with its parent, which gets its answer,
and with its open children. A group that ends the lease of a worker locks a batch of the instances of that worker
together with the others. Rows that are reached in another way are locked where they are read; then a deadlock is
possible, and PostgreSQL aborts one of the two groups, which is retried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from holdfast.core.admission import IdPolicy
from holdfast.core.history import EventReceived
from holdfast.storage.members.attempts import (
    CancelActivity,
    ClaimAttempts,
    Completion,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
)
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Pause,
    Release,
    Resume,
    RetryBlocked,
    SaveFlow,
    SetAttributes,
    SetDeadline,
    Start,
    Terminate,
    Watch,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, Deliver
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.members.row_handling import HandleReports, HandleRequest, QueueAttempts
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown


@dataclass(slots=True)
class LockSet:
    """The rows that the members of a group name."""

    numbers: set[int] = field(default_factory=set[int])
    ids: set[str] = field(default_factory=set[str])
    ending: set[int] = field(default_factory=set[int])
    """The instances that may end: their parents and children are locked, too."""
    families: set[int] = field(default_factory=set[int])
    """The roots of families that may be deleted: all their descendants are locked, too."""
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
    starts = {at: start.id for at, member in enumerate(members) if (start := _start_of(member)) is not None}
    if not starts:
        return list(range(len(members)))
    return [*sorted(starts, key=starts.__getitem__), *(at for at in range(len(members)) if at not in starts)]


def _start_of(member: Member) -> Start | None:
    if isinstance(member, Start):
        return member
    return member.action if isinstance(member, HandleRequest) and isinstance(member.action, Start) else None


def _note(named: LockSet, member: Member) -> None:
    match member:
        case Turn():
            named.numbers.add(member.number)
            _note_turn(named, member)
        case Start():
            named.ids.add(member.id)
            if member.first is not None:
                _note_turn(named, member.first)
        case Completion() | StreamValues() | OpenNextAttempt():
            key = member.ended.key if isinstance(member, OpenNextAttempt) else member.key
            named.numbers.add(key.number)
        case Release() | Block() | SetDeadline() | CancelActivity() | Watch():
            named.numbers.add(member.number)
        case Expire() | CloseChildren():
            _note_target(named, "", member.number, may_end=True)
        case Terminate() | RetryBlocked() | Pause() | Resume() | SetAttributes():
            _note_target(named, member.id, member.number, may_end=isinstance(member, Terminate | Resume))
        case Deliver():
            _note_message(named, member)
        case HandleRequest() | HandleReports():
            _note_rows(named, member)
        case MarkWorkerLost() | ReleaseUnknown() | DeleteFamilies() | DeleteExecutions():
            _note_many(named, member)
        case (
            ClaimInstances()
            | ClaimAttempts()
            | HeartbeatAttempt()
            | RunPrepared()
            | QueueAttempts()
            | SaveFlow()
            | AskQuery()
            | ClaimQueries()
            | AnswerQuery()
            | DeleteQueries()
            | InsertRequest()
            | InsertReport()
            | LiftNumbers()
            | RestoreInstances()
        ):
            pass
        case _:
            assert_never(member)


def _note_many(named: LockSet, member: MarkWorkerLost | ReleaseUnknown | DeleteFamilies | DeleteExecutions) -> None:
    if isinstance(member, DeleteFamilies):
        named.families.update(member.roots)
    elif isinstance(member, DeleteExecutions):
        named.numbers.update(member.numbers)
    else:
        _note_loss(named, member)


def _note_rows(named: LockSet, rows: HandleRequest | HandleReports) -> None:
    if isinstance(rows, HandleReports):
        named.numbers.update(() if rows.key is None else (rows.key.number,))
    elif rows.action is not None:
        _note(named, rows.action)


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
    named.ids.update(child.id for child in effects.children if child.policy is not IdPolicy.IDEMPOTENT)
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
