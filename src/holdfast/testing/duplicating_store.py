"""Stores that commit members twice: the second commit must change nothing (L11, G6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - made from the seed of the simulation
from types import EllipsisType
from typing import Any, Final, TypeVar, cast

from holdfast.authoring.activity import Activity
from holdfast.core.admission import EventVerdict, IdPolicy
from holdfast.core.history import EventReceived
from holdfast.errors import StoreError
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import Expire, Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, Delivered, Expired, HandledRows, Outcome, StartedInstance
from holdfast.storage.members.row_handling import HandleReports, HandleRequest
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.relational.transaction import Row
from holdfast.storage.sqlite.files import StoreFiles
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.writer import SqliteWriter
from holdfast.storage.wakeups import Notify, ignore_wakeups
from holdfast.testing.crashes import NameOf, Where, names_in

Value = TypeVar("Value")
DUPLICATES: Final = 0.2
UNKNOWN: Final = 0.5
DUPLICATE_ID: Final = 2**40

AGAIN: Final = 1 << 62
"""A bit that is set in the id of a repeated commit."""
CONTRACT_MEMBERS: Final = InsertRequest | InsertReport | HandleRequest | HandleReports
"""Rows of clients are inserted and handled once (C2)."""
TAKEN: Final = (EventVerdict.DELIVER, EventVerdict.KEEP)


class RedeliveringStore(SqliteStore):
    """Commits the members named in `repeated` twice; `violations` lists those that had an effect twice."""

    repeated: list[Where]
    violations: list[str]
    name_of: NameOf

    def begin_repeating(self, name_of: NameOf) -> None:
        """Begin with no repeated members."""
        self.repeated = []
        self.violations = []
        self.name_of = name_of

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        named = [member for member in members if self.repeated and self._is_named(member)]
        outcomes = await super().commit(commit_id, members, notify)
        if named:
            second = await super().commit(CommitId(commit_id ^ AGAIN), named)
            pairs = zip(named, second, strict=True)
            self.violations += [f"{member!r} was applied twice" for member, outcome in pairs if _did(member, outcome)]
        return outcomes

    def _is_named(self, member: Member) -> bool:
        if not _is_one(member):
            return False
        if any(isinstance(each, EllipsisType) for each in self.repeated):
            return True
        wanted = {each.name if isinstance(each, Activity) else each for each in self.repeated}
        return not wanted.isdisjoint(names_in(member, self.name_of))


def _is_one(member: Member) -> bool:
    """Whether a repeated member is a duplicate, and not a second request."""
    match member:
        case Start():
            return member.policy is IdPolicy.IDEMPOTENT  # with other policies a second start is a new one (G3)
        case Deliver():
            return bool(member.message_id) or not isinstance(member.event, EventReceived)  # G6: known by its id
        case _:
            return isinstance(member, Turn | Completion | OpenNextAttempt | Expire | CONTRACT_MEMBERS)


def _did(member: Member, outcome: Outcome) -> bool:
    """Whether a repeated member changed anything. A turn without events has no number, so it is not counted."""
    match outcome:
        case Applied():
            return outcome.changed > 0 and not (isinstance(member, Turn) and not member.events)
        case HandledRows():
            return _changed_rows(member, outcome)
        case Delivered():
            return outcome.verdict in TAKEN
        case StartedInstance():
            return outcome.created
        case Expired():
            return True
        case _:
            return False


def _changed_rows(member: Member, outcome: HandledRows) -> bool:
    """Whether rows were handled. Reports under an unknown exec id are refused again, which changes nothing (C2)."""
    is_unknown = isinstance(member, HandleReports) and member.key is None
    return bool(outcome.requests or outcome.reports) and not is_unknown


class DuplicatingStore(SqliteStore):
    """Commits some members twice, as a network with retries does. The second commit must change nothing.

    `lost_replies` is the share of commits that raise an error although they are on disk; `was_committed` fails for half
    of these.
    """

    def __init__(self, path: Path, *, clock: Callable[[], int], random: Random, lost_replies: float = 0.0) -> None:
        super().__init__(path, clock=clock, durability="none")
        self._random = random
        self._lost_replies = lost_replies
        self.replies_lost = 0
        self._duplicates = 0
        self.reads = 0
        self.violations: list[str] = []

    def _new_writer(self, files: StoreFiles) -> SqliteWriter:
        """A writer whose random ids come from the seed of the simulation."""
        writer = super()._new_writer(files)
        connection = cast("Any", writer._connection)
        connection.create_scalar_function("randomblob", self._random.randbytes, 1)
        return writer

    def _fetch(self, statement: str, bindings: tuple[Any, ...]) -> list[Row]:
        self.reads += 1
        return super()._fetch(statement, bindings)

    async def _on_writer_thread(self, work: Callable[[], Value]) -> Value:
        """Run the work on the simulated event loop: a simulation has no threads."""
        return work()

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        outcomes = await super().commit(commit_id, members, notify)
        again = [
            member
            for member in members
            if isinstance(member, Turn | Completion | OpenNextAttempt | Start | CONTRACT_MEMBERS)
            and self._random.random() < DUPLICATES
        ]
        if again:
            self._duplicates += 1
            second = await super().commit(CommitId(DUPLICATE_ID + commit_id), again)
            self.violations += [
                f"applied twice: {member!r}"
                for member, outcome in zip(again, second, strict=True)
                if _is_second_effect(member, outcome)
            ]
        if self._lost_replies and self._random.random() < self._lost_replies:
            self.replies_lost += 1
            raise StoreError("the reply was lost")
        return outcomes

    async def was_committed(self, commit_id: CommitId) -> bool:
        if self._lost_replies and self._random.random() < UNKNOWN:
            raise StoreError("the commit cannot be looked up")
        return await super().was_committed(commit_id)


def _is_second_effect(member: Member, outcome: Outcome) -> bool:
    """Whether a repeated member had an effect again. A turn without events has no number and no effect."""
    if isinstance(outcome, HandledRows):
        return _changed_rows(member, outcome)
    if isinstance(outcome, Applied):
        is_insert = isinstance(member, InsertRequest | InsertReport)
        return outcome.changed > 0 if is_insert else not (isinstance(member, Turn) and not member.events)
    return False
