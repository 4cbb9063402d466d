"""The optimistic write transaction: assumes that every guard holds, and sends all statements in one call.

A guarded statement nearly always changes its one row. So statements are queued and assumed to succeed, and the server
runs all of them in one call with the next read, or with the COMMIT (`batch_function`). If one of them does not change
its row, the call fails, nothing is committed, and the writer applies the group again in a transaction that waits for
each result. Most groups cost one round trip.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from holdfast.core.admission import IdPolicy
from holdfast.core.history import EventReceived
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt, OpenNextAttempt, RunPrepared
from holdfast.storage.members.instances import Release, Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.row_handling import HandleRequest
from holdfast.storage.members.turns import Turn
from holdfast.storage.postgres.connection import PostgresConnection
from holdfast.storage.postgres.optimistic.batch_function import BatchedStatement, call_of, kinds_of
from holdfast.storage.postgres.transaction import run_pipelined, statements_of
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.transaction import Row

FRESH_MS: Final = 1_000
"""How long fetched instance numbers may be used: numbers should grow with time."""
FEWEST_NUMBERS: Final = 4


class MissedRow(Exception):
    """A statement outside of the batch function did not change its one row."""


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

    def add(self, rows: Sequence[Row], now_ms: int) -> None:
        self._fetched.extend(number for (number,) in rows)
        self._fetched_ms = now_ms

    def take(self, fetch: Callable[[int], Sequence[Row]], now_ms: int) -> int:
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
            return member.policy is IdPolicy.IDEMPOTENT and (
                member.first is None or _is_without_relatives(member.first)
            )
        case HandleRequest():
            return isinstance(member.action, Start) and _is_likely(member.action)
        case Deliver():
            return isinstance(member.event, EventReceived)
        case Completion() | OpenNextAttempt() | Release() | HeartbeatAttempt() | RunPrepared():
            return True
        case _:  # a member that is not listed waits for each answer, which is always correct
            return False


def _is_without_relatives(turn: Turn) -> bool:
    effects = turn.effects
    return effects is None or not (effects.has_relatives or effects.changes_children)


class OptimisticTransaction:
    """Statements of one group. `asked` are sent before them, the BEGIN first."""

    reads_are_cheap = False

    def __init__(
        self,
        connection: PostgresConnection,
        schema: str,
        now_ms: int,
        *,
        asked: list[BoundStatement],
        numbers: InstanceNumbers,
    ) -> None:
        self.sql = statements_of(schema)
        self.now_ms = now_ms
        self._connection = connection
        self._schema = schema
        self._asked = asked
        self._numbers = numbers
        self._queued: list[BatchedStatement] = []
        self.last: list[list[Row]] = []
        """The results of the statements that were sent with the COMMIT; empty if they were lost."""
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

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Send the queue, and run a statement that returns rows."""
        *_, rows = self._flush((statement, *bindings))
        return rows

    def commit(self, *last: BoundStatement) -> None:
        """Send the queue, run `last`, and commit. Statements outside of the batch function are checked before."""
        kinds = kinds_of(self._schema)
        if any(change.one and change.statement not in kinds for change in self._queued):
            self._flush()
        wanted = self._numbers.wanted
        more: list[BoundStatement] = [(self.sql.next_numbers, wanted)] if wanted else []
        answers = self._flush(*more, *last, ("COMMIT",))
        self.last = answers[-1 - len(last) : -1]
        if wanted:
            self._numbers.add(answers[-2 - len(last)], self.now_ms)

    def _flush(self, *more: BoundStatement) -> list[list[Row]]:
        """One round trip: the statements before the queue, the queue, and `more`."""
        asked = self._asked
        self._asked = []
        queued = self._queued
        self._queued = []
        calls = list(self._calls(queued))
        answers = run_pipelined(self._connection, *asked, *(call for call, _ in calls), *more)
        for (_, change), rows in zip(calls, answers[len(asked) :], strict=False):
            met = rows[0][0] if rows else 0  # a read that finds nothing returns no row
            if change is not None and change.one and met != 1:
                raise MissedRow(f"{change.statement} met {met} rows")
        return answers

    def _calls(self, queued: Sequence[BatchedStatement]) -> Iterator[tuple[BoundStatement, BatchedStatement | None]]:
        """Adjacent statements of the batch function share a call; the others are sent alone."""
        kinds = kinds_of(self._schema)
        for is_known, changes in groupby(queued, key=lambda change: change.statement in kinds):
            if is_known:
                yield call_of(self._schema, list(changes)), None
            else:
                yield from ((((change.statement, *change.values), change)) for change in changes)

    def _fetch_numbers(self, count: int) -> Sequence[Row]:
        [rows] = run_pipelined(self._connection, (self.sql.next_numbers, count))
        return rows
