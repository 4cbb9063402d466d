"""Writes groups: each in one transaction, and knows what came of it.

A group that met another one in a circle, or waited too long for a row, is tried again. An error that no guard foresaw
is one member's fault: the group is rolled back and its halves are tried by themselves, until the member stands alone. A
connection that is lost before the COMMIT was sent has changed nothing, and the group goes through another one. Lost
at the COMMIT, the outcome is settled by the group's id: `void_commit` waits for the old transaction, if it is still
under way, and either finds what it wrote or makes sure that it never will be there.

Heartbeats, on a connection of their own: they do not wait behind groups (W1-W5).
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import psycopg

from holdfast.core.leases import SHORTEST_LEASE_MS, Heartbeat, HeartbeatReply
from holdfast.errors import StoreError
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Failed, Outcome, Rejected
from holdfast.storage.members.workers import Registration, ReplyLost
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import ErrorClass, PostgresConnection, RetryingConnection, classify_error
from holdfast.storage.postgres.lock_order import apply_order, lock_set_of
from holdfast.storage.postgres.optimistic.batch_function import MISSED
from holdfast.storage.postgres.optimistic.transaction import (
    InstanceNumbers,
    MissedRow,
    OptimisticTransaction,
    is_eligible,
)
from holdfast.storage.postgres.transaction import BEGIN, PostgresTransaction, ServerClock, run_pipelined, statements_of
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.apply.workers import apply_worker_heartbeat
from holdfast.storage.relational.transaction import ConcurrentChange

if TYPE_CHECKING:
    from holdfast.storage.relational.reads import BoundStatement


NO_FUNCTION: Final = "42883"
RELAXED: Final = "relaxed"
LOCK_TIMEOUT: Final = "2s"
IDLE_TIMEOUT: Final = "3s"
"""How long a group may say nothing to the server in the middle of its transaction."""
MOST_RELATIVES: Final = 500
MOST_UNKNOWN: Final = 3
"""Times in a row that a group may lose its connection at the COMMIT."""


class NotCommitted(Exception):
    """A connection was lost at the COMMIT, and it has been found out that nothing is on disk."""


class PostgresWriter:
    """Used from one thread at a time."""

    def __init__(self, address: Address, clock: ServerClock, *, durability: str = "full") -> None:
        self._address = address
        self._clock = clock
        self._sql = statements_of(address.schema)
        self._insisting = RetryingConnection(address)
        self._begin_group: BoundStatement = (self._sql.begin_group, LOCK_TIMEOUT, IDLE_TIMEOUT)
        if durability == RELAXED:
            self._begin_group = (self._sql.begin_relaxed, LOCK_TIMEOUT, IDLE_TIMEOUT)
        self._news: BoundStatement | None = None
        self._part = 0
        self._numbers = InstanceNumbers()
        self._is_mistaken = False
        self._has_function = True
        """Where the function was not made, which is found out by the first group, each answer is waited for."""
        self._in_doubt: dict[CommitId, int] = {}

    def stop(self) -> None:
        """Whoever waits for the next try gives up. May be called from another thread."""
        self._insisting.stop()

    def close(self) -> None:
        """End the connection, which nobody uses any more."""
        self._insisting.close()

    def write(self, commit_id: CommitId, members: Sequence[Member], sender: str | None = None) -> list[Outcome]:
        """Write a group. When it returns, what was applied is on disk. Others are told with the commit, by `sender`."""
        self._part = 0
        self._is_mistaken = False
        is_news = sender is not None and any(member.notifies for member in members)
        self._news = (self._sql.notify, self._address.channel, sender) if is_news else None
        order = apply_order(members)
        ordered = self._write(commit_id, [members[at] for at in order], is_whole=True)
        outcomes = dict(zip(order, ordered, strict=True))
        return [outcomes[at] for at in range(len(members))]

    def was_committed(self, commit_id: CommitId) -> bool:
        """Whether anything of a group is on disk; what is still under way is waited for."""
        part = self._in_doubt.get(commit_id)
        if part is not None:
            self._settle(commit_id, part)
        [rows] = self._insisting.run(lambda connection: run_pipelined(connection, (self._sql.find_commit, commit_id)))
        return bool(rows)

    def _write(self, commit_id: CommitId, members: Sequence[Member], *, is_whole: bool) -> list[Outcome]:
        try:
            for _ in range(MOST_UNKNOWN):
                try:
                    return self._insisting.run(lambda connection: self._group(connection, commit_id, members, is_whole))
                except NotCommitted:
                    continue  # that is certain now, so the group may be written again
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to the member that caused it
            if len(members) == 1:
                return [Failed(error=error)]
            middle = len(members) // 2
            first = self._write(commit_id, members[:middle], is_whole=False)
            return first + self._write(commit_id, members[middle:], is_whole=False)
        raise StoreError(f"{self._address} lost every connection at the commit")

    def _group(
        self, connection: PostgresConnection, commit_id: CommitId, members: Sequence[Member], is_whole: bool
    ) -> list[Outcome]:
        """One transaction. Each has a number of its own under the group's id: any of them says "on disk"."""
        if is_whole and self._has_function and not self._is_mistaken and is_eligible(members):
            try:
                return self._write_optimistically(connection, commit_id, members)
            except (psycopg.Error, MissedRow) as error:
                if isinstance(error, psycopg.Error) and error.sqlstate not in (MISSED, NO_FUNCTION):
                    raise
                self._is_mistaken = True
                self._has_function &= not isinstance(error, psycopg.errors.UndefinedFunction)
                self._part -= 1  # the server has refused it, so its number is free
                connection.execute("ROLLBACK")
        part = self._part
        self._part = self._part + 1
        transaction = self._begin(connection, commit_id, part, members, is_whole)
        if transaction is None:
            return [Rejected(reason="a commit of this id was made before") for _ in members]
        outcomes = apply_members(transaction, members)
        if self._clock.marks_every_group:
            transaction.update(self._sql.advance_clock, transaction.now_ms, self._clock.slack_ms)
        self._settled(connection, commit_id, part, lambda: self._commit(connection))
        return outcomes

    def _write_optimistically(
        self, connection: PostgresConnection, commit_id: CommitId, members: Sequence[Member]
    ) -> list[Outcome]:
        """The same in one round trip, if everything goes as it nearly always does."""
        part = self._part
        self._part = self._part + 1
        sql, named, now_ms = self._sql, lock_set_of(members), self._clock.now_ms()
        asked: list[BoundStatement] = [
            BEGIN,
            self._begin_group,
            (sql.lock_instances_and_ids, sorted(named.numbers), sorted(named.ids)),
        ]
        transaction = OptimisticTransaction(
            connection, self._address.schema, now_ms, asked=asked, numbers=self._numbers
        )
        transaction.update(sql.begin_commit, commit_id, part, now_ms)
        outcomes = apply_members(transaction, members)
        if self._clock.marks_every_group:
            transaction.execute(sql.advance_clock, now_ms, self._clock.slack_ms)
        last: list[BoundStatement] = [(sql.server_time,)] if self._news is None else [(sql.server_time,), self._news]
        self._settled(connection, commit_id, part, lambda: transaction.commit(*last))
        if transaction.last:
            self._clock.read(*transaction.last[0][0])
        return outcomes

    def _begin(
        self, connection: PostgresConnection, commit_id: CommitId, part: int, members: Sequence[Member], is_whole: bool
    ) -> PostgresTransaction | None:
        """Begin, and lock what the group names, in one round trip if that is known. None: the id was used before."""
        sql, named = self._sql, lock_set_of(members)
        asked: list[BoundStatement] = [
            BEGIN,
            self._begin_group,
            (sql.server_time,),
            (sql.find_commit, commit_id),
            (sql.insert_commit, commit_id, part, self._clock.now_ms()),
        ]
        relatives = named.ids or named.ending or named.lost
        if relatives:
            asked.append((sql.numbers_of_ids, list(named.ids)))
            asked.append((sql.parents_of, list(named.ending)))
            asked.append((sql.open_children_of, list(named.ending), MOST_RELATIVES))
            asked.extend((sql.numbers_of_owner, key, limit) for key, limit in named.lost.items())
        elif named.numbers:
            asked.append((sql.lock_instances, sorted(named.numbers)))
        _, _, [(server_ms, mark_ms)], found, [(inserted,)], *rest = run_pipelined(connection, *asked)
        now_ms = self._clock.read(server_ms, mark_ms)
        if (found and is_whole) or not inserted:
            return None
        if relatives:
            current = {number for number, _ in rest[0]}
            related = {number for rows in rest for row in rows for number in row if number is not None}
            locks: list[BoundStatement] = [(sql.lock_instances, sorted(named.numbers | related))]
            if named.lost:
                locks.append((sql.lock_workers, sorted(named.actors.union(named.lost))))
            locked, *_ = run_pipelined(connection, *locks)
            if any(number in current and superseded is not None for number, superseded in locked):
                raise ConcurrentChange("an id was given to another instance while its row was waited for")
        return PostgresTransaction(connection, sql, now_ms)

    def _commit(self, connection: PostgresConnection) -> None:
        if self._news is None:
            connection.execute("COMMIT")
        else:
            run_pipelined(connection, self._news, ("COMMIT",))

    def _settled(
        self, connection: PostgresConnection, commit_id: CommitId, part: int, commit: Callable[[], None]
    ) -> None:
        """Commit, and know what came of it."""
        self._in_doubt[commit_id] = part
        try:
            commit()
        except (psycopg.Error, OSError) as error:
            if not connection.closed and classify_error(error) is not ErrorClass.CONNECTION_LOST:
                del self._in_doubt[commit_id]  # the server has refused it
                raise
            self._insisting.lost(error)
            if not self._settle(commit_id, part):
                raise NotCommitted from error
        except BaseException:
            del self._in_doubt[commit_id]
            raise
        else:
            del self._in_doubt[commit_id]

    def _settle(self, commit_id: CommitId, part: int) -> bool:
        """Find out what came of a commit: it is on disk, or it never will be."""
        sql = self._sql
        asked: tuple[BoundStatement, ...] = (
            BEGIN,
            (sql.begin_group, LOCK_TIMEOUT, IDLE_TIMEOUT),
            (sql.void_commit, commit_id, part, self._clock.now_ms()),
            (sql.find_part, commit_id, part),
            ("COMMIT",),
        )
        *_, rows, _ = self._insisting.run(lambda connection: run_pipelined(connection, *asked))
        del self._in_doubt[commit_id]
        return bool(rows)


HEARTBEAT_LOCK_TIMEOUT: Final = "1s"
IDLE_MS: Final = 2_000
IDLE_PARTS: Final = 2
"""A heartbeat that stops in the middle must not keep others from ending its lease: it has so long at most, and no more
than that part of its lease, which is over before the lease itself."""


class HeartbeatWriter:
    """Judges heartbeats and records leases. One at a time; a thread that was given up may still be at it."""

    def __init__(self, address: Address, clock: ServerClock) -> None:
        self._address = address
        self._clock = clock
        self._sql = statements_of(address.schema)
        self._insisting = RetryingConnection(address, losses=2)
        self._one_beat = threading.Lock()

    def stop(self) -> None:
        """Whoever waits for the next try gives up. May be called from another thread."""
        self._insisting.stop()

    def close(self) -> None:
        """End the connection, which nobody uses any more."""
        with self._one_beat:
            self._insisting.close()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """One heartbeat. It is sent again where nothing of it can have been kept, and never where its reply was lost:
        the sender has to know that, or it takes the next token for somebody else's (W4, W9).
        """
        with self._one_beat:
            return self._insisting.run(lambda connection: self._beat(connection, beat, registration))

    def _beat(self, connection: PostgresConnection, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        sql, idle_ms = self._sql, _idle_ms(beat)
        _, _, _, [(server_ms, mark_ms)] = run_pipelined(
            connection,
            BEGIN,
            (sql.begin_group, HEARTBEAT_LOCK_TIMEOUT, f"{idle_ms}ms"),
            (sql.read_worker, beat.key),
            (sql.server_time,),  # when the row is ours: whoever waited for it must not judge by an older time
        )
        transaction = PostgresTransaction(connection, sql, self._clock.read(server_ms, mark_ms))
        reply = apply_worker_heartbeat(transaction, beat, registration)
        try:
            run_pipelined(connection, (sql.advance_clock, transaction.now_ms, self._clock.slack_ms), ("COMMIT",))
        except (psycopg.Error, OSError) as error:
            if not connection.closed and classify_error(error) is not ErrorClass.CONNECTION_LOST:
                raise  # the server has refused it
            self._insisting.lost(error)
            trouble = " ".join(str(error).split())
            raise ReplyLost(f"{self._address} was lost at the commit of a heartbeat: {trouble}") from error
        return reply


def _idle_ms(beat: Heartbeat) -> int:
    """A lease that is not asked for, or makes no sense, is judged later. Zero would mean for ever."""
    return min(IDLE_MS, max(beat.lease_ms or 0, SHORTEST_LEASE_MS) // IDLE_PARTS)
