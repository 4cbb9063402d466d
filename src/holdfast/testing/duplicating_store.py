"""A store that delivers twice what a test names: the second time nothing may change (L11, G6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - made from the seed of the simulation
from types import EllipsisType
from typing import Final, TypeVar

from holdfast.authoring.activity import Activity
from holdfast.core.admission import EventVerdict, IdPolicy
from holdfast.core.history import EventReceived
from holdfast.errors import StoreError
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Expire, Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, Delivered, Expired, Outcome, StartedInstance
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.crashes import NameOf, Where, names_in

Value = TypeVar("Value")
DUPLICATES: Final = 0.2
UNKNOWN: Final = 0.5
DUPLICATE_ID: Final = 2**40

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
        self.repeated = []
        self.violations = []
        self.name_of = name_of

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


class DuplicatingStore(SqliteStore):
    """Delivers some members twice, as networks and impatient senders do. The second time nothing may change.

    Of its commits, the share `lost_replies` is told as an error although it is on disk; of those, half cannot be looked
    up either.
    """

    def __init__(self, path: Path, *, clock: Callable[[], int], random: Random, lost_replies: float = 0.0) -> None:
        super().__init__(path, clock=clock, durability="none")
        self._random = random
        self._lost_replies = lost_replies
        self.replies_lost = 0
        self._duplicates = 0
        self.violations: list[str] = []

    async def _on_writer_thread(self, work: Callable[[], Value]) -> Value:
        """Real threads have no place in a simulation."""
        return work()

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        outcomes = await super().commit(commit_id, members)
        again = [
            member
            for member in members
            if isinstance(member, Turn | Completion | OpenNextAttempt | Start) and self._random.random() < DUPLICATES
        ]
        if again:
            self._duplicates += 1
            second = await super().commit(CommitId(DUPLICATE_ID + commit_id), again)
            self.violations += [
                f"applied twice: {member!r}"
                for member, outcome in zip(again, second, strict=True)
                if isinstance(outcome, Applied) and not _may_repeat(member)
            ]
        if self._lost_replies and self._random.random() < self._lost_replies:
            self.replies_lost += 1
            raise StoreError("the reply was lost")
        return outcomes

    async def was_committed(self, commit_id: CommitId) -> bool:
        if self._lost_replies and self._random.random() < UNKNOWN:
            raise StoreError("the commit cannot be looked up")
        return await super().was_committed(commit_id)


def _may_repeat(member: Member) -> bool:
    """A turn without events has no number of its own; repeating it repeats nothing."""
    return isinstance(member, Turn) and not member.events
