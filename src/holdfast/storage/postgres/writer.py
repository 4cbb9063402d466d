"""Writes groups, each in one transaction with a known outcome, and heartbeats.

Most groups are one call of the group function (`optimistic`). If an assumption of the call was wrong, nothing was
written, and the group is applied in a transaction that waits for each answer.

A group that deadlocked, or waited too long for a row, is retried. An error that no guard covers is caused by one
member: the group is rolled back and bisected until that member is alone. A connection that is lost before the COMMIT
was sent has changed nothing, and the group is written on another one. If it is lost at the COMMIT, or at any time
during the one call, the outcome is settled by the group's id: `void_commit` waits for the old transaction, if it still
runs, and either finds its commit or makes sure that it can never commit.

Heartbeats have a connection of their own, so that they do not wait behind groups (W1-W5).
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.core.leases import SHORTEST_LEASE_MS, Heartbeat, HeartbeatReply
from holdfast.errors import StoreError
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Failed, Outcome, Rejected
from holdfast.storage.members.restoring import LiftNumbers
from holdfast.storage.members.workers import Registration, ReplyLost
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import ErrorClass, PostgresConnection, RetryingConnection, classify_error
from holdfast.storage.postgres.lock_order import apply_order, lock_set_of
from holdfast.storage.postgres.optimistic.group_call import GroupHead, GroupReply, NotOneCall
from holdfast.storage.postgres.optimistic.group_function import LOCK_TIMEOUT, MISSED, UNSUITABLE
from holdfast.storage.postgres.optimistic.transaction import (
    InstanceNumbers,
    OptimisticTransaction,
    is_eligible,
    may_be_one_call,
)
from holdfast.storage.postgres.transaction import BEGIN, PostgresTransaction, ServerClock, run_pipelined, statements_of
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.apply.workers import apply_worker_heartbeat
from holdfast.storage.relational.transaction import ConcurrentChange, Row, Transaction
from holdfast.storage.wakeups import Wakeups

if TYPE_CHECKING:
    from holdfast.storage.relational.reads import BoundStatement


NO_FUNCTION: Final = "42883"
RELAXED: Final = "relaxed"
IDLE_TIMEOUT: Final = "3s"
"""How long the transaction of a group may be idle."""
MOST_RELATIVES: Final = 500
MOST_UNKNOWN: Final = 3
"""Consecutive losses of the connection at the COMMIT of one group."""


def _read_wakeups(transaction: Transaction) -> Sequence["BoundStatement"]:
    """The read of the instances that the group concerns other processes with, for the end of its transaction."""
    numbers = transaction.wakeups.numbers()
    return [(transaction.sql.wakeup_targets, numbers)] if numbers else []


class NotCommitted(Exception):
    """A connection was lost at the COMMIT, and the group is known not to be on disk."""


class OneCall(NamedTuple):
    """A group that is one call, and the outcomes of its members if the call succeeds."""

    commit_id: CommitId
    part: int
    order: Sequence[int]
    """The positions of the members in the order in which they are applied."""
    transaction: OptimisticTransaction
    outcomes: list[Outcome]
    text: bytes
    """The call, to be sent as one message."""


class PostgresWriter:
    """Writes groups. Used from one thread at a time."""

    def __init__(self, address: Address, clock: ServerClock, *, durability: str = "full") -> None:
        self._address = address
        self._clock = clock
        self._sql = statements_of(address.schema)
        self._connection = RetryingConnection(address)
        self._is_relaxed = durability == RELAXED
        begin_group = self._sql.begin_relaxed if self._is_relaxed else self._sql.begin_group
        self._begin_group: BoundStatement = (begin_group, LOCK_TIMEOUT, IDLE_TIMEOUT)
        self.wakeups = Wakeups()
        """The wake-ups of the last group."""
        self._part = 0
        self._numbers = InstanceNumbers()
        self._is_mistaken = False
        self._has_function = True
        """False after the first group found no group function: each statement is then a round trip."""
        self._needs_begin = False
        """True after the group function refused the defaults of the role: calls are then between BEGIN and COMMIT."""
        self._in_doubt: dict[CommitId, int] = {}

    def stop(self) -> None:
        """Stop retrying. May be called from another thread."""
        self._connection.stop()

    def close(self) -> None:
        """Close the connection, which is not in use."""
        self._connection.close()

    def write(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Write a group. Applied members are on disk when it returns."""
        return self._write_all(commit_id, members, part=0, is_mistaken=False)

    def _write_all(
        self, commit_id: CommitId, members: Sequence[Member], *, part: int, is_mistaken: bool
    ) -> list[Outcome]:
        self._part = part
        self._is_mistaken = is_mistaken
        self.wakeups = Wakeups()
        order = apply_order(members)
        ordered = self._write(commit_id, [members[at] for at in order], is_whole=True)
        return _in_given_order(order, ordered)

    def was_committed(self, commit_id: CommitId) -> bool:
        """Whether any part of a group is on disk. Waits for a transaction of it that still runs."""
        part = self._in_doubt.get(commit_id)
        if part is not None:
            self._settle(commit_id, part)
        [rows] = self._connection.run(lambda connection: run_pipelined(connection, (self._sql.find_commit, commit_id)))
        return bool(rows)

    def _write(self, commit_id: CommitId, members: Sequence[Member], *, is_whole: bool) -> list[Outcome]:
        try:
            for _ in range(MOST_UNKNOWN):
                try:
                    return self._connection.run(
                        lambda connection: self._group(connection, commit_id, members, is_whole)
                    )
                except NotCommitted:
                    continue  # nothing was committed, so the group may be written again
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the member that caused it
            if len(members) == 1:
                return [Failed(error=error)]
            middle = len(members) // 2
            first = self._write(commit_id, members[:middle], is_whole=False)
            return first + self._write(commit_id, members[middle:], is_whole=False)
        raise StoreError(f"{self._address} lost every connection at the commit")

    def _group(
        self, connection: PostgresConnection, commit_id: CommitId, members: Sequence[Member], is_whole: bool
    ) -> list[Outcome]:
        """One transaction. Each part of a bisected group has its own number under the group's id."""
        if is_whole and self._has_function and not self._is_mistaken and is_eligible(members):
            try:
                return self._write_optimistically(connection, commit_id, members)
            except (psycopg.Error, NotOneCall) as error:
                if not self._is_refuted(error):
                    raise
                self._part -= 1  # the server has rolled it back, so its number is free
                if connection.info.transaction_status != TransactionStatus.IDLE:
                    connection.execute("ROLLBACK")
        part = self._part
        self._part = self._part + 1
        transaction = self._begin(connection, commit_id, part, members, is_whole)
        if transaction is None:
            return [Rejected(reason="a commit of this id was made before") for _ in members]
        outcomes = apply_members(transaction, members)
        if self._clock.marks_every_group:
            transaction.update(self._sql.advance_clock, transaction.now_ms, self._clock.slack_ms)
        read = _read_wakeups(transaction)
        self._settled(connection, commit_id, part, lambda: self._commit(connection, transaction, read))
        if any(isinstance(member, LiftNumbers) for member in members):
            self._numbers = InstanceNumbers()  # those that it has were fetched before the counter was lifted
        return outcomes

    def _is_refuted(self, error: Exception) -> bool:
        """Whether an error of the group function says that the group has to be written in another way."""
        state = error.sqlstate if isinstance(error, psycopg.Error) else MISSED
        self._has_function &= state != NO_FUNCTION
        self._needs_begin |= state == UNSUITABLE
        self._is_mistaken |= state in (MISSED, NO_FUNCTION, UNSUITABLE)
        return self._is_mistaken

    # ------------------------------------------------------------ one call

    def _write_optimistically(
        self, connection: PostgresConnection, commit_id: CommitId, members: Sequence[Member]
    ) -> list[Outcome]:
        """The same in one call of the group function, assuming that every guard holds."""
        part = self._part
        self._part = self._part + 1
        transaction, outcomes = self._compose(commit_id, part, members, connection)
        replies: list[GroupReply] = []

        def commit() -> None:
            replies.append(transaction.commit(connection, with_begin=self._needs_begin))

        self._settled(connection, commit_id, part, commit)
        for reply in replies:  # there is none if the connection was lost after the commit
            self._note_reply(transaction, reply)
        return outcomes

    def _compose(
        self, commit_id: CommitId, part: int, members: Sequence[Member], connection: PostgresConnection | None
    ) -> tuple[OptimisticTransaction, list[Outcome]]:
        named = lock_set_of(members)
        now_ms = self._clock.now_ms()
        transaction = OptimisticTransaction(
            self._address.schema,
            now_ms,
            head=GroupHead(commit_id, part, now_ms, sorted(named.numbers), sorted(named.ids)),
            numbers=self._numbers,
            is_relaxed=self._is_relaxed,
            begin=(BEGIN, self._begin_group),
            connection=connection,
        )
        outcomes = apply_members(transaction, members)
        if self._clock.marks_every_group:
            transaction.execute(self._sql.advance_clock, now_ms, self._clock.slack_ms)
        return transaction, outcomes

    def _note_reply(self, transaction: OptimisticTransaction, reply: GroupReply) -> None:
        self._clock.read(reply.server_ms, reply.mark_ms)
        self._note_wakeups(transaction, [list(reply.target_rows())])

    def ready_connection(self) -> PostgresConnection | None:
        """The connection, if it is open."""
        return self._connection.ready()

    def one_call(self, commit_id: CommitId, members: Sequence[Member], encoding: str) -> OneCall | None:
        """The call that writes a group; None if it has to be written by `write`. Sends nothing and does not wait."""
        if not self._has_function or self._needs_begin or not (may_be_one_call(members) and is_eligible(members)):
            return None
        order = apply_order(members)
        with suppress(Exception):  # `write` meets the error again, and finds the member that causes it
            transaction, outcomes = self._compose(commit_id, 0, [members[at] for at in order], None)
            call = OneCall(commit_id, 0, order, transaction, outcomes, transaction.call().encode(encoding))
            self._in_doubt[commit_id] = call.part
            return call
        return None

    def succeeded(self, call: OneCall, reply: str) -> list[Outcome]:
        """The outcomes of a group whose call returned."""
        del self._in_doubt[call.commit_id]
        self.wakeups = Wakeups()
        self._note_reply(call.transaction, call.transaction.read_reply(reply))
        return _in_given_order(call.order, call.outcomes)

    def failed(self, call: OneCall, members: Sequence[Member], error: psycopg.Error | OSError) -> list[Outcome]:
        """Write a group whose call failed in another way, unless the call is on disk and only its reply was lost."""
        connection = self._connection.ready()
        self._is_mistaken = False
        if connection is None or classify_error(error) is ErrorClass.CONNECTION_LOST:
            self._connection.lost(error)
            self.wakeups = Wakeups()
            if self._settle(call.commit_id, call.part):
                return _in_given_order(call.order, call.outcomes)
            return self._write_all(call.commit_id, members, part=call.part + 1, is_mistaken=False)
        del self._in_doubt[call.commit_id]  # the server has rejected it
        return self._write_all(call.commit_id, members, part=call.part, is_mistaken=self._is_refuted(error))

    # ------------------------------------------------------------ waiting for each answer

    def _begin(
        self, connection: PostgresConnection, commit_id: CommitId, part: int, members: Sequence[Member], is_whole: bool
    ) -> PostgresTransaction | None:
        """Begin, and lock the rows that the group names, in one round trip if they are known. None: the id is taken."""
        sql = self._sql
        named = lock_set_of(members)
        asked: list[BoundStatement] = [
            BEGIN,
            self._begin_group,
            (sql.server_time,),
            (sql.find_commit, commit_id),
            (sql.insert_commit, commit_id, part, self._clock.now_ms()),
        ]
        relatives = named.ids or named.ending or named.lost or (named.families and named.numbers)
        if relatives:
            asked.append((sql.numbers_of_ids, list(named.ids)))
            asked.append((sql.parents_of, list(named.ending)))
            asked.append((sql.open_children_of, list(named.ending), MOST_RELATIVES))
            asked.extend((sql.numbers_of_owner, key, limit) for key, limit in named.lost.items())
            if named.families:
                asked.append((sql.numbers_of_families, sorted(named.families)))
        elif named.families:
            asked.append((sql.lock_families, sorted(named.families)))
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

    def _commit(
        self, connection: PostgresConnection, transaction: PostgresTransaction, read: "Sequence[BoundStatement]"
    ) -> None:
        *targets, _ = run_pipelined(connection, *read, ("COMMIT",))
        self._note_wakeups(transaction, targets)

    def _note_wakeups(self, transaction: Transaction, targets: Sequence[list[Row]]) -> None:
        """Add the wake-ups of a part that is on disk. `targets` are the rows that `_read_wakeups` asks for."""
        if not transaction.wakeups.is_empty():
            self.wakeups |= transaction.wakeups.resolve(targets[0] if targets else (), transaction.now_ms)

    def _settled(
        self, connection: PostgresConnection, commit_id: CommitId, part: int, commit: Callable[[], None]
    ) -> None:
        """Commit, and settle an unknown outcome."""
        self._in_doubt[commit_id] = part
        try:
            commit()
        except (psycopg.Error, OSError) as error:
            if not connection.closed and classify_error(error) is not ErrorClass.CONNECTION_LOST:
                del self._in_doubt[commit_id]  # the server has rejected it
                raise
            self._connection.lost(error)
            if not self._settle(commit_id, part):
                raise NotCommitted from error
        except BaseException:
            del self._in_doubt[commit_id]
            raise
        else:
            del self._in_doubt[commit_id]

    def _settle(self, commit_id: CommitId, part: int) -> bool:
        """Whether a commit is on disk. If it is not, it never will be."""
        sql = self._sql
        asked: tuple[BoundStatement, ...] = (
            BEGIN,
            (sql.begin_group, LOCK_TIMEOUT, IDLE_TIMEOUT),
            (sql.void_commit, commit_id, part, self._clock.now_ms()),
            (sql.find_part, commit_id, part),
            ("COMMIT",),
        )
        *_, rows, _ = self._connection.run(lambda connection: run_pipelined(connection, *asked))
        del self._in_doubt[commit_id]
        return bool(rows)


def _in_given_order(order: Sequence[int], ordered: Sequence[Outcome]) -> list[Outcome]:
    outcomes = dict(zip(order, ordered, strict=True))
    return [outcomes[at] for at in range(len(ordered))]


HEARTBEAT_LOCK_TIMEOUT: Final = "1s"
IDLE_MS: Final = 2_000
IDLE_PARTS: Final = 2
"""A heartbeat that stops in the middle must not prevent others from ending its lease: its transaction may be idle for
this time at most, and no longer than this part of its lease."""


class HeartbeatWriter:
    """Judges heartbeats and records leases, one at a time: an abandoned heartbeat thread may still run."""

    def __init__(self, address: Address, clock: ServerClock) -> None:
        self._address = address
        self._clock = clock
        self._sql = statements_of(address.schema)
        self._connection = RetryingConnection(address, losses=2)
        self._heartbeat_lock = threading.Lock()

    def stop(self) -> None:
        """Stop retrying. May be called from another thread."""
        self._connection.stop()

    def close(self) -> None:
        """Close the connection, which is not in use."""
        with self._heartbeat_lock:
            self._connection.close()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """One heartbeat. It is retried if nothing of it can have been committed, and never after a lost reply: the
        worker would take its own next token for that of another one (W4, W9).
        """
        with self._heartbeat_lock:
            return self._connection.run(lambda connection: self._beat(connection, beat, registration))

    def _beat(self, connection: PostgresConnection, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        sql = self._sql
        idle_ms = _idle_ms(beat)
        _, _, _, [(server_ms, mark_ms)] = run_pipelined(
            connection,
            BEGIN,
            (sql.begin_group, HEARTBEAT_LOCK_TIMEOUT, f"{idle_ms}ms"),
            (sql.read_worker, beat.key),
            (sql.server_time,),  # read after the row is locked: a wait for the lock must not make it old
        )
        transaction = PostgresTransaction(connection, sql, self._clock.read(server_ms, mark_ms))
        reply = apply_worker_heartbeat(transaction, beat, registration)
        try:
            run_pipelined(connection, (sql.advance_clock, transaction.now_ms, self._clock.slack_ms), ("COMMIT",))
        except (psycopg.Error, OSError) as error:
            if not connection.closed and classify_error(error) is not ErrorClass.CONNECTION_LOST:
                raise  # the server has rejected it
            self._connection.lost(error)
            trouble = " ".join(str(error).split())
            raise ReplyLost(f"{self._address} was lost at the commit of a heartbeat: {trouble}") from error
        return reply


def _idle_ms(beat: Heartbeat) -> int:
    """A missing or invalid lease is judged later. Zero would mean no timeout."""
    return min(IDLE_MS, max(beat.lease_ms or 0, SHORTEST_LEASE_MS) // IDLE_PARTS)
