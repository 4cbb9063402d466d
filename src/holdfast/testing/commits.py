"""Commits as a test names them: by an activity, by a name, by their number, or all of them.

A commit belongs to an activity when it records how an attempt of it ended. It belongs to a name when that is the name
of such an activity, of an event that reaches the code in it, or the kind of anything that it adds to the history
(``handle.history()`` has the kinds: ``started``, ``timer_fired``, ``workflow_completed``, ...).
"""

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Final, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.core.events import ActivityCompleted, ActivityFailed, EventReceived, HistoryEvent, decode_events
from holdfast.errors import InvalidOption, UsageError
from holdfast.runtime.faults import FaultPoint
from holdfast.storage.contract import (
    Completion,
    Deliver,
    Expire,
    InstanceNumber,
    Member,
    OpenNextAttempt,
    Start,
    StreamValues,
    Terminate,
    Turn,
)

Where = AnyActivity | str | int | EllipsisType
"""Which commits: an activity, a name, the number of one, counted from now, or ``...`` for every one."""
NameOf = Callable[[InstanceNumber, int, int], str]
"""The name of an activity, by its instance, execution and number."""
NO_NUMBER: Final = 0
"""Of an instance that is created in the very commit."""


def checked(where: object) -> Where:
    """What a test may say."""
    if isinstance(where, Activity):
        activity: Activity[..., Any] = cast(Any, where)
        return activity
    if isinstance(where, bool) or not isinstance(where, str | int | EllipsisType):
        raise UsageError(f"name an activity, a step, the number of a commit or ... for every one, not {where!r}")
    if isinstance(where, int) and where < 1:
        raise InvalidOption(f"commits are numbered from 1, not {where}")
    return where


def names_in(member: Member, name_of: NameOf) -> Iterator[str]:
    """The names of the steps that a member records."""
    match member:
        case Start():
            yield "started"
            if member.first is not None:
                yield from names_in(member.first, name_of)
        case Turn():
            for event in decode_events(member.events) if member.events else []:
                yield from _names_of_event(event, member, name_of)
        case Completion():
            yield name_of(member.key.number, member.key.execution, member.key.activity)
        case OpenNextAttempt():
            key = member.ended.key
            yield name_of(key.number, key.execution, key.activity)
        case Deliver():
            if isinstance(member.event, EventReceived):
                yield member.event.name
        case _:
            return


def _names_of_event(event: HistoryEvent, turn: Turn, name_of: NameOf) -> Iterator[str]:
    yield str(event.__struct_config__.tag)
    if isinstance(event, ActivityCompleted | ActivityFailed) and turn.number != NO_NUMBER:
        yield name_of(turn.number, turn.execution, event.activity)
    elif isinstance(event, EventReceived):
        yield event.name


def identity_of(member: Member) -> tuple[object, ...] | None:
    """Which step a member is, however often it is tried; None for what is no step (claims, leases)."""
    match member:
        case Start():
            return ("start", member.id)
        case Turn():
            return ("turn", member.number, member.execution, member.turn)
        case Completion():
            return ("end", member.key.number, member.key.execution, member.key.activity)
        case OpenNextAttempt():
            return ("end", member.ended.key.number, member.ended.key.execution, member.ended.key.activity)
        case StreamValues():
            return ("yield", member.key.number, member.key.activity, member.event.number)
        case Deliver():
            return ("message", member.id, member.message_id)
        case Terminate():
            return ("terminate", member.id)
        case Expire():
            return ("expire", member.number)
        case _:
            return None


class Crash:
    """What `Environment.crash` gives back: where the worker dies, and how often it has."""

    def __init__(self, point: FaultPoint, where: Where) -> None:
        self._point = point
        self._where = where
        self._seen: set[tuple[object, ...]] = set()
        self._commits = 0
        self.deaths = 0

    def __repr__(self) -> str:
        return f"<crash {self._point} {self._where!r}: {self.deaths} so far>"

    def is_due(self, point: FaultPoint, members: Sequence[Member], name_of: NameOf) -> bool:
        """Whether the worker dies now. At one step it dies once, however often the step is tried."""
        if point is not self._point:
            return False
        self._commits += 1
        if not self._is_here(members, name_of):
            return False
        self.deaths += 1
        return True

    def _is_here(self, members: Sequence[Member], name_of: NameOf) -> bool:
        where = self._where
        if isinstance(where, EllipsisType):
            steps = {identity for member in members if (identity := identity_of(member)) is not None}
            is_new = bool(steps - self._seen)
            self._seen |= steps
            return is_new
        if self.deaths:
            return False
        if isinstance(where, int):
            return self._commits == where
        wanted = where if isinstance(where, str) else where.name
        told = [member for member in members if not isinstance(member, Deliver)]  # a message has not reached the code
        return any(wanted in names_in(member, name_of) for member in told)
