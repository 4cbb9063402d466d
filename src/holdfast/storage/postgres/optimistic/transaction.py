"""The optimistic write transaction: assumes that every guard holds, and sends all statements in one call.

A guarded statement nearly always changes its one row. So statements are queued and assumed to succeed, and the server
runs all of them in one call of the group function. If one of them does not change its row, the call fails, nothing is
committed, and the writer applies the group again in a transaction that waits for each result.

A group without reads is one call and one round trip, without BEGIN and COMMIT. A read sends the queue first, in a
transaction that begins there, and that the COMMIT behind the last call ends.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.core.admission import IdPolicy
from holdfast.core.history import EventReceived
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt, OpenNextAttempt, RunPrepared
from holdfast.storage.members.instances import Release, Start, Watch
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.row_handling import HandleRequest
from holdfast.storage.members.turns import Turn
from holdfast.storage.postgres.connection import PostgresConnection
from holdfast.storage.postgres.optimistic.group_call import (
    BatchedStatement,
    GroupHead,
    GroupReply,
    call_of,
    decode_reply,
    runs_of,
)
from holdfast.storage.postgres.transaction import run_pipelined, statements_of
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.transaction import Row
from holdfast.storage.wakeups import WakeupTargets

FRESH_MS: Final = 1_000
"""How long fetched instance numbers may be used: numbers should grow with time."""
FEWEST_NUMBERS: Final = 4


class NeedsConnection(Exception):
    """A group that was to be one call has to read, so it needs a connection and a thread that may wait."""


class InstanceNumbers:
    """Numbers for instances to be started, fetched with earlier groups."""

    def __init__(self) -> None:
        self._fetched: deque[int] = deque()
        self._fetched_ms = 0
        self._taken = 0

    def begin(self, now_ms: int) -> None:
        """Begin a group. Discards numbers that were fetched too long ago."""
        if now_ms - self._fetched_ms > FRESH_MS:
            self._fetched.clear()
        self._taken = 0

    @property
    def wanted(self) -> int:
        """How many numbers the next group needs, if it is like this one."""
        return max(0, self._taken - len(self._fetched))

    def add(self, numbers: Sequence[int], now_ms: int) -> None:
        self._fetched.extend(numbers)
        self._fetched_ms = now_ms

    def take(self, fetch: Callable[[int], Sequence[int]], now_ms: int) -> int:
        """The next number."""
        if not self._fetched:
            self.add(fetch(max(FEWEST_NUMBERS, 2 * self._taken)), now_ms)
        self._taken += 1
        return self._fetched.popleft()


def is_eligible(members: Sequence[Member]) -> bool:
    """Whether the guards of a group nearly always hold, and it ends no other instances."""
    return all(_is_likely(member) for member in members)


def _is_likely(member: Member) -> bool:
    match member:
        case Turn():
            return _is_without_relatives(member)
        case Start():
            return (
                member.policy is IdPolicy.IDEMPOTENT
                and (member.first is None or _is_without_relatives(member.first))
                and (member.mail is None or isinstance(member.mail.event, EventReceived))
            )
        case HandleRequest():
            return isinstance(member.action, Start) and _is_likely(member.action)
        case Deliver():
            return isinstance(member.event, EventReceived)
        case OpenNextAttempt():
            return member.exhausted is None
        case Completion() | Release() | HeartbeatAttempt() | RunPrepared() | Watch():
            return True
        case _:  # a member that is not listed waits for each answer, which is always correct
            return False


def _is_without_relatives(turn: Turn) -> bool:
    effects = turn.effects
    if effects is None:
        return True
    return not (effects.has_relatives or effects.changes_children or effects.activities_asked)


READING: Final = (Completion, OpenNextAttempt, HeartbeatAttempt, RunPrepared, Deliver)
"""Members that read in any case. Others may read, too: `NeedsConnection` is the exact answer."""


def may_be_one_call(members: Sequence[Member]) -> bool:
    """Whether an eligible group may be written without a read."""
    return not any(isinstance(member, READING) for member in members)


class OptimisticTransaction:
    """Statements of one group. Without a connection it sends nothing, and a read is a `NeedsConnection`.

    `begin` are the statements that begin a transaction with reads.
    """

    reads_are_cheap = False

    def __init__(
        self,
        schema: str,
        now_ms: int,
        *,
        head: GroupHead,
        numbers: InstanceNumbers,
        is_relaxed: bool,
        begin: Sequence[BoundStatement],
        connection: PostgresConnection | None = None,
    ) -> None:
        self.sql = statements_of(schema)
        self.now_ms = now_ms
        self.wakeups = WakeupTargets()
        self._schema = schema
        self._head: GroupHead | None = head
        self._numbers = numbers
        self._is_relaxed = is_relaxed
        self._connection = connection
        self._begin = begin
        self._is_begun = False
        self._queued: list[BatchedStatement] = []
        numbers.begin(now_ms)

    def update(self, statement: str, *bindings: Any) -> int:
        """Queue a statement that is assumed to change one row."""
        self._queued.append(BatchedStatement(statement, bindings, one=True))
        return 1

    def execute(self, statement: str, *bindings: Any) -> None:
        """Queue a statement that may change any number of rows."""
        self._queued.append(BatchedStatement(statement, bindings, one=False))

    def exists(self, statement: str, *bindings: Any) -> bool:
        """Queue a read that is assumed to find its row."""
        self._queued.append(BatchedStatement(statement, bindings, one=True))
        return True

    def insert_instance(self, statement: str, *bindings: Any) -> int | None:
        """Queue a new instance, under a number of our own."""
        del statement
        number = self._numbers.take(self._fetch_numbers, self.now_ms)
        self._queued.append(BatchedStatement(self.sql.start_numbered, (number, *bindings), one=True))
        return number

    def delete_instances(self, numbers: Sequence[int]) -> None:
        """Never called: no member that deletes instances is eligible."""
        del numbers
        raise NeedsConnection

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Send the queue, and run a statement that returns rows."""
        if self._connection is None:
            raise NeedsConnection
        before = [(self._next_call(),)] if self._head is not None or self._queued else []
        *_, rows = self._send(self._connection, *before, (statement, *bindings))
        return rows

    def call(self) -> str:
        """The call that writes the whole group, or what is left of it after reads."""
        return self._next_call(concerned=self.wakeups.numbers(), wanted=self._numbers.wanted)

    def commit(self, connection: PostgresConnection, *, with_begin: bool) -> GroupReply:
        """Write the group. `with_begin`: the defaults of the role do not suit an implicit transaction."""
        last = self.call()
        if with_begin or self._is_begun:
            *_, [(text,)], _ = self._send(connection, (last,), ("COMMIT",))
        else:  # without parameters psycopg sends one message of the simple query protocol
            [(text,)] = connection.execute(last.encode(connection.info.encoding)).fetchall()
        return self.read_reply(str(text))

    def read_reply(self, text: str) -> GroupReply:
        """Read the reply to the last call: the fresh numbers are for later groups."""
        reply = decode_reply(text)
        if reply.fresh:
            self._numbers.add(reply.fresh, self.now_ms)
        return reply

    def _send(self, connection: PostgresConnection, *asked: BoundStatement) -> list[list[Row]]:
        begin = () if self._is_begun else self._begin
        self._is_begun = True
        return run_pipelined(connection, *begin, *asked)

    def _next_call(self, *, concerned: Sequence[int] = (), wanted: int = 0) -> str:
        runs = runs_of(self._schema, self._queued)
        head = self._head
        self._head = None
        self._queued = []
        return call_of(self._schema, runs, head=head, concerned=concerned, wanted=wanted, relaxed=self._is_relaxed)

    def _fetch_numbers(self, count: int) -> Sequence[int]:
        if self._connection is None:
            raise NeedsConnection
        [rows] = run_pipelined(self._connection, (self.sql.next_numbers, count))
        return [number for (number,) in rows]
