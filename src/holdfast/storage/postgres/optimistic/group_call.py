"""The call of the group function: the order of the statements, the text of the call, and the reply.

Statements of one kind are brought together, so that the server runs them as one. That changes their order, which is
safe because a statement changes and reads rows of one instance only, whose number is one of its values: statements
about different instances may change places. The statements of one instance keep their order, which is that of
`BATCHED`. The statements of an instance with another order, as when two members of a group are about it, stay apart
and run as they were queued, after the others. Statements without a number are about rows that no statement of an
instance touches.

The call is one message of the simple query protocol with its values in the text: the server begins when it has the
whole message, and commits at its end. With bound parameters the Sync that commits is a message of its own, and libpq
sends in pieces of 8 kB: a process that is stopped between two of them would hold its rows until it continues.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import psycopg

from holdfast.storage.postgres.optimistic.group_function import BATCHED, FUNCTION, SETS
from holdfast.storage.postgres.transaction import statements_of
from holdfast.storage.relational.transaction import Row

MOST_CHARACTERS: Final = 32 * 1024 * 1024
"""The length of the values of a call. PostgreSQL takes messages and values of up to 1 GB, and holds those of a call in
memory several times; statement by statement each value is in a message of its own."""
COMMUTING: Final = frozenset({"insert_payload"})
"""Statements that have the number of an instance, and touch rows that no other statement of the function touches."""


class NotOneCall(Exception):
    """The statements of a group cannot be one call of the function: the group has to wait for each answer."""


class BatchedStatement(NamedTuple):
    """One statement with its values. `one`: it has to change exactly one row."""

    statement: str
    values: tuple[Any, ...]
    one: bool


class StatementKind(NamedTuple):
    """A statement of the function."""

    place: int
    """Its number, and its place in the order of the statements of an instance."""
    number_at: int | None
    """The position of the instance's number among its values."""


class StatementRun(NamedTuple):
    """Statements of one kind, one after the other."""

    kind: int
    """Negative if they may change any number of rows."""
    rows: Sequence[tuple[Any, ...]]


class GroupHead(NamedTuple):
    """The begin of a group: the id under which it is stored, and the instances that it locks."""

    commit_id: int
    part: int
    at_ms: int
    numbers: Sequence[int]
    ids: Sequence[str]


class GroupReply(msgspec.Struct, array_like=True, frozen=True):
    """The reply of the function."""

    server_ms: int
    mark_ms: int
    fresh: list[int] | None
    """Numbers for the instances of later groups."""
    targets: list[dict[str, Any]] | None
    """The rows of `wakeup_targets`, by the names of their columns, in the order of the columns."""

    def target_rows(self) -> Iterator[Row]:
        """The rows as other transactions read them."""
        return (tuple(row.values()) for row in self.targets or ())


_PLACES_OF_SETS: Final = frozenset(place for place, name in enumerate(BATCHED, 1) if name in SETS)
_reply: Final = msgspec.json.Decoder(GroupReply)
decode_reply: Final = _reply.decode
"""The reply, from the text that the function returns."""


@lru_cache
def kinds_of(schema: str) -> dict[str, StatementKind]:
    """The statements of the function, by their texts."""
    sql = statements_of(schema)
    found: dict[str, StatementKind] = {}
    for place, name in enumerate(BATCHED, 1):
        text: str = getattr(sql, name)
        number_at = None if name in COMMUTING else number_position(text)
        found[text] = StatementKind(place, number_at)
    return found


def number_position(text: str) -> int | None:
    """The position of the instance's number among the values of a statement; None if it has none."""
    inserted = re.fullmatch(r"INSERT INTO \S+ \(([^()]*)\) VALUES \((.*?)\)(?: ON CONFLICT .*)?", text)
    if inserted is not None:
        columns = inserted[1].split(", ")
        value = inserted[2].split(", ")[columns.index("number") - len(columns)] if "number" in columns else ""
    else:
        compared = re.search(r"\bnumber = (\$\d+)", text)
        value = compared[1] if compared else ""
    return int(value[1:]) - 1 if value.startswith("$") else None


def runs_of(schema: str, queued: Iterable[BatchedStatement]) -> list[StatementRun]:
    """The runs of a group. Raises `NotOneCall` if a statement is not in the function."""
    kinds = kinds_of(schema)
    by_kind: dict[int, list[BatchedStatement]] = defaultdict(list)
    reached: dict[Any, int] = {}
    unordered: set[Any] = set()
    for change in queued:
        kind = kinds.get(change.statement)
        if kind is None:
            raise NotOneCall(f"the group function has no statement {change.statement}")
        place, number_at = kind
        by_kind[place if change.one else -place].append(change)
        if number_at is not None:
            number = change.values[number_at]
            if reached.get(number, 0) > place:
                unordered.add(number)
            reached[number] = place
    return [
        *_together(by_kind, kinds, unordered),
        *(_apart(queued, kinds, unordered) if unordered else ()),
    ]


def _number_of(change: BatchedStatement, kinds: dict[str, StatementKind]) -> Any:
    number_at = kinds[change.statement].number_at
    return None if number_at is None else change.values[number_at]


def _together(
    by_kind: dict[int, list[BatchedStatement]], kinds: dict[str, StatementKind], unordered: set[Any]
) -> Iterator[StatementRun]:
    for signed in sorted(by_kind, key=abs):
        changes = by_kind[signed]
        if unordered:
            changes = [change for change in changes if _number_of(change, kinds) not in unordered]
        rows = [change.values for change in changes]
        if abs(signed) not in _PLACES_OF_SETS:
            yield from (StatementRun(signed, [row]) for row in rows)
        elif rows:
            yield StatementRun(signed, rows)


def _apart(
    queued: Iterable[BatchedStatement], kinds: dict[str, StatementKind], unordered: set[Any]
) -> Iterator[StatementRun]:
    for change in queued:
        if _number_of(change, kinds) in unordered:
            place = kinds[change.statement].place
            yield StatementRun(place if change.one else -place, [change.values])


def call_of(
    schema: str,
    runs: Sequence[StatementRun],
    *,
    head: GroupHead | None = None,
    concerned: Sequence[int] = (),
    wanted: int = 0,
    relaxed: bool = False,
) -> str:
    """The text of the call. Without a head, an earlier call of the same transaction was the begin of the group.

    Raises `NotOneCall` if it would be too long.
    """
    begin = (
        "NULL, NULL, NULL, '{}', '{}'"
        if head is None
        else f"{head.commit_id}, {head.part}, {head.at_ms}, '{_list(head.numbers)}', "
        + literal(f"{{{','.join(map(as_text, head.ids))}}}")
    )
    kinds = _list([run.kind for run in runs])
    counts = _list([len(run.rows) for run in runs])
    given = _given(runs)
    if "\0" in given or "\0" in begin:
        raise psycopg.DataError("a text of PostgreSQL cannot contain NUL")
    changes = f"'{kinds}', '{counts}', {literal(f'{{{given}}}')}"
    end = f"'{_list(concerned)}', {wanted}, {'true' if relaxed else 'false'}"
    return f'SELECT "{schema}".{FUNCTION}({begin}, {changes}, {end})'


def _given(runs: Iterable[StatementRun]) -> str:
    parts: list[str] = []
    length = 0
    for run in runs:
        if values := [as_text(value) for row in run.rows for value in row]:
            parts.append(part := ",".join(values))
            length += len(part)
            if length > MOST_CHARACTERS:
                raise NotOneCall(f"a call of more than {MOST_CHARACTERS:,} characters")
    return ",".join(parts)


def _list(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def literal(text: str) -> str:
    """A string constant, which means the same whatever `standard_conforming_strings` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def as_text(value: Any) -> str:
    """A value as an element of a list of strings, which the function casts to the type it needs."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return f'"{_escaped(value)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"') if "\\" in text or '"' in text else str(text)
