"""A store that delivers twice what a test names: the second time nothing may change (L11, G6)."""

from collections.abc import Sequence
from types import EllipsisType
from typing import Final

from holdfast.authoring.activity import Activity
from holdfast.core.events import EventReceived
from holdfast.core.gates import EventVerdict, IdPolicy
from holdfast.storage.contract import (
    Applied,
    CommitId,
    Completion,
    Deliver,
    Delivered,
    Expire,
    Expired,
    Member,
    OpenNextAttempt,
    Outcome,
    Start,
    StartedInstance,
    Turn,
)
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.commits import NameOf, Where, names_in

AGAIN: Final = 1 << 62
"""Set in the id of the commit that delivers things again."""
TAKEN: Final = (EventVerdict.DELIVER, EventVerdict.KEEP)


class RedeliveringStore(SqliteStore):
    """`repeated` says what comes twice, `violations` what was done twice because of it."""

    repeated: list[Where]
    violations: list[str]
    name_of: NameOf

    def begin_repeating(self, name_of: NameOf) -> None:
        """Nothing comes twice yet."""
        self.repeated, self.violations, self.name_of = [], [], name_of

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        named = [member for member in members if self.repeated and self._is_named(member)]
        outcomes = await super().commit(commit_id, members)
        if named:
            second = await super().commit(CommitId(commit_id ^ AGAIN), named)
            pairs = zip(named, second, strict=True)
            self.violations += [f"{member!r} was done twice" for member, outcome in pairs if _did(member, outcome)]
        return outcomes

    def _is_named(self, member: Member) -> bool:
        if not _is_one(member):
            return False
        if any(isinstance(each, EllipsisType) for each in self.repeated):
            return True
        wanted = {each.name if isinstance(each, Activity) else each for each in self.repeated}
        return not wanted.isdisjoint(names_in(member, self.name_of))


def _is_one(member: Member) -> bool:
    """Whether the same member again means the same thing again, and not another one."""
    match member:
        case Start():
            return member.policy is IdPolicy.IDEMPOTENT  # other policies say that a second start is another one (G3)
        case Deliver():
            return bool(member.message_id) or not isinstance(member.event, EventReceived)  # G6: known by its id
        case _:
            return isinstance(member, Turn | Completion | OpenNextAttempt | Expire)


def _did(member: Member, outcome: Outcome) -> bool:
    """Whether a member that came again changed anything. A turn without events has no number of its own."""
    match outcome:
        case Applied():
            return not (isinstance(member, Turn) and not member.events)
        case Delivered():
            return outcome.verdict in TAKEN
        case StartedInstance():
            return outcome.created
        case Expired():
            return True
        case _:
            return False
