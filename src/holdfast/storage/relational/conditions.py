"""The tests of a filter as conditions of SQL (F4). Values are always bound; the text of a condition is fixed.

A condition is true or false, never null, so that `NOT` means the same in every store. It names the row of an instance
`i`. Statements are written for SQLite, as the shared ones are.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, assert_never

from holdfast.core.attributes import (
    BOOL_CLASS,
    NUMBER_CLASS,
    TEXT_CLASS,
    TIME_CLASS,
    bool_key,
    number_key,
    text_key,
    time_key,
)
from holdfast.core.checks import require
from holdfast.core.children import MOST_PARENTS
from holdfast.core.filters import (
    And,
    Between,
    Comparison,
    Field,
    Filter,
    In,
    Instant,
    IsNull,
    Kind,
    Length,
    Not,
    Operator,
    Or,
    RelativeInstant,
    StartsWith,
    Test,
    Value,
)
from holdfast.storage.versions import NOT_CHOSEN

FOREVER_MS: Final = 2**62
"""Above every time."""
AFTER_CLASS: Final = {TEXT_CLASS: "u", NUMBER_CLASS: "o", BOOL_CLASS: "c", TIME_CLASS: "e"}
"""The end of the keys of each class."""
PARENT_ID: Final = "(SELECT above.id FROM instances AS above WHERE above.number = i.parent)"
ROOT_ID: Final = (
    "(WITH RECURSIVE line(id, parent, depth) AS (SELECT i.id, i.parent, 0 UNION ALL"
    " SELECT above.id, above.parent, line.depth + 1 FROM line JOIN instances AS above ON above.number = line.parent"
    f" WHERE line.depth < {MOST_PARENTS}) SELECT line.id FROM line ORDER BY line.depth DESC LIMIT 1)"
)
NO_WAITS: Final = "(i.waits IS NULL OR i.closed_at_ms IS NOT NULL OR i.waits = '[]' OR i.waits = '[\"\"]')"

OWN_KEY: Final = "(t.value || '')"
"""The key of an attribute of one instance. As an expression it leaves the planner only the primary key: the index by
values may have every instance with the value."""

ONE_BY_ONE: Final = " LIMIT 1 OFFSET 0"
"""Keeps PostgreSQL from reading the attributes of all instances into a hash table: it looks up each row."""

COLUMNS: Final = {
    "id": "i.id",
    "workflow": "i.workflow",
    "version": f"NULLIF(i.version, '{NOT_CHOSEN}')",
    "state": "i.state",
    "execution": "i.execution",
    "created": "i.created_at_ms",
    "root": ROOT_ID,
    "closed": "i.closed_at_ms",
    "duration": "(i.closed_at_ms - i.created_at_ms)",
    "parent": PARENT_ID,
    "error": "i.error",
    "blocked": "i.blocked",
}
NEVER_NULL: Final = frozenset({"id", "workflow", "state", "execution", "created", "root"})


class Bounds(NamedTuple):
    """A range of integers, both ends included. Empty if `low` is above `high`."""

    low: int = -FOREVER_MS
    high: int = FOREVER_MS

    def within(self, other: "Bounds") -> "Bounds":
        return Bounds(max(self.low, other.low), min(self.high, other.high))


class Bindings:
    """The values of one statement. A value that is bound twice has one place."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def bind(self, value: Any) -> str:
        """The place of a value in the statement."""
        self.values.append(value)
        return f"?{len(self.values)}"

    def bind_all(self, values: Iterable[Any]) -> str:
        return ", ".join([self.bind(value) for value in values])


def key_of(value: Value) -> str:
    """The key that an attribute with this value has."""
    match value:
        case bool():
            return bool_key(value)
        case int() | float():
            return number_key(value)
        case str():
            return text_key(value)
        case Instant():
            return time_key(value.microseconds)
        case Length() | RelativeInstant():
            raise TypeError(f"no attribute has the value {value!r}")


def milliseconds(test: Comparison | Between) -> Bounds | None:
    """The milliseconds that a test of a time or a duration allows; None for ``!=``."""
    if isinstance(test, Between):
        return Bounds(_upwards(test.low), _downwards(test.high))
    match test.operator:
        case Operator.EQUAL:
            return Bounds(_upwards(test.value), _downwards(test.value))
        case Operator.BELOW:
            return Bounds(high=_upwards(test.value) - 1)
        case Operator.AT_MOST:
            return Bounds(high=_downwards(test.value))
        case Operator.ABOVE:
            return Bounds(_downwards(test.value) + 1)
        case Operator.AT_LEAST:
            return Bounds(_upwards(test.value))
        case Operator.NOT_EQUAL:
            return None


def _microseconds(value: Value) -> int:
    require(isinstance(value, Instant | Length), f"{value!r} is not a time of its own")
    return value.microseconds if isinstance(value, Instant | Length) else 0


def _upwards(value: Value) -> int:
    return -(-_microseconds(value) // 1_000)


def _downwards(value: Value) -> int:
    return _microseconds(value) // 1_000


def condition(found: Filter, bindings: Bindings, position: str) -> str:
    """The condition of a tree without relative times. `position` is the function that finds a text in a text."""
    match found:
        case And() | Or():
            word = " AND " if isinstance(found, And) else " OR "
            return f"({word.join([condition(part, bindings, position) for part in found.parts])})"
        case Not():
            return f"(NOT {condition(found.part, bindings, position)})"
        case _:
            return _test(found, bindings, position)


def _test(test: Test, bindings: Bindings, position: str) -> str:
    match test.field.kind:
        case Kind.ATTRIBUTE:
            return _attribute(test, bindings)
        case Kind.NAMES:
            return _names(test, bindings, position)
        case Kind.TIME | Kind.DURATION:
            return _time(test, bindings)
        case Kind.TEXT | Kind.STATE | Kind.NUMBER:
            return _column(test, bindings)
        case _ as never:
            assert_never(never)


def _two_valued(field: Field, text: str) -> str:
    return text if field.name in NEVER_NULL else f"COALESCE({text}, FALSE)"


def _is_null(test: IsNull) -> str:
    return f"({COLUMNS[test.field.name]} IS {'NOT ' if test.is_negated else ''}NULL)"


def _column(test: Test, bindings: Bindings) -> str:
    column = COLUMNS[test.field.name]
    text: str
    match test:
        case IsNull():
            return _is_null(test)
        case Comparison():
            text = f"{column} {_sql(test.operator)} {bindings.bind(test.value)}"
        case In():
            text = f"{column} IN ({bindings.bind_all(test.values)})"
        case Between():
            text = f"{column} BETWEEN {bindings.bind(test.low)} AND {bindings.bind(test.high)}"
        case StartsWith():
            text = f"substr({column}, 1, {len(test.prefix)}) = {bindings.bind(test.prefix)}"
    return _two_valued(test.field, f"({text})")


def _sql(operator: Operator) -> str:
    return "<>" if operator is Operator.NOT_EQUAL else operator.value


def _time(test: Test, bindings: Bindings) -> str:
    column = COLUMNS[test.field.name]
    text: str
    match test:
        case IsNull():
            return _is_null(test)
        case Comparison(operator=Operator.NOT_EQUAL):
            equal = milliseconds(Comparison(test.field, Operator.EQUAL, test.value)) or Bounds()
            text = f"({column} NOT BETWEEN {bindings.bind(equal.low)} AND {bindings.bind(equal.high)})"
        case Comparison() | Between():
            bounds = milliseconds(test) or Bounds()
            text = f"({column} BETWEEN {bindings.bind(bounds.low)} AND {bindings.bind(bounds.high)})"
        case In():
            equals = [Comparison(test.field, Operator.EQUAL, value) for value in test.values]
            return f"({' OR '.join([_time(equal, bindings) for equal in equals])})"
        case StartsWith():
            raise TypeError(f"{test.field} is no text")
    return _two_valued(test.field, text)


def _names(test: Test, bindings: Bindings, position: str) -> str:
    """Events that an open instance waits for. The column is a JSON list, whose quotes and commas are those of
    `json.dumps`, so that an element is found by the text around it."""

    def has(element: str) -> str:
        places = [bindings.bind(f"{before}{element}") for before in ("[", ", ")]
        found = " OR ".join([f"{position}(i.waits, {place}) > 0" for place in places])
        return f"COALESCE(i.closed_at_ms IS NULL AND ({found}), FALSE)"

    match test:
        case IsNull():
            return f"(NOT {NO_WAITS})" if test.is_negated else NO_WAITS
        case Comparison(operator=Operator.EQUAL):
            return has(json.dumps(test.value))
        case Comparison():
            return f"(NOT {NO_WAITS} AND NOT {has(json.dumps(test.value))})"
        case In():
            return f"({' OR '.join([has(json.dumps(value)) for value in test.values])})"
        case StartsWith():
            return has(json.dumps(test.prefix)[:-1]) if test.prefix else f"(NOT {NO_WAITS})"
        case Between():
            raise TypeError(f"{test.field} has no order")


SURROGATES: Final = 0xD800
AFTER_SURROGATES: Final = 0xE000


class KeyRange(NamedTuple):
    """Keys of attributes: `low` <= key, and key < `end` or key <= `last`."""

    low: str
    end: str | None = None
    last: str | None = None
    after: str | None = None
    """The keys are above this one, too."""

    def condition(self, column: str, bindings: Bindings) -> str:
        tests = [f"{column} >= {bindings.bind(self.low)}"]
        if self.after is not None:
            tests.append(f"{column} > {bindings.bind(self.after)}")
        if self.end is not None:
            tests.append(f"{column} < {bindings.bind(self.end)}")
        if self.last is not None:
            tests.append(f"{column} <= {bindings.bind(self.last)}")
        return " AND ".join(tests)


def key_range(test: Comparison | Between | StartsWith) -> KeyRange | None:
    """The keys that an ordered test of an attribute allows; None for ``=`` and ``!=``."""
    if isinstance(test, StartsWith):
        prefix = text_key(test.prefix)
        return KeyRange(prefix, end=following(prefix))
    if isinstance(test, Between):
        low = key_of(test.low)
        return KeyRange(low, end=AFTER_CLASS[low[0]], last=key_of(test.high))
    key = key_of(test.value)
    end = AFTER_CLASS[key[0]]
    match test.operator:
        case Operator.BELOW:
            return KeyRange(key[0], end=key)
        case Operator.AT_MOST:
            return KeyRange(key[0], last=key)
        case Operator.ABOVE:
            return KeyRange(key[0], after=key, end=end)
        case Operator.AT_LEAST:
            return KeyRange(key, end=end)
        case Operator.EQUAL | Operator.NOT_EQUAL:
            return None


def following(prefix: str) -> str:
    """The first text behind all that begin with a prefix, whose first character is below the last that there is."""
    kept = prefix.rstrip("\U0010ffff")
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(AFTER_SURROGATES if last == SURROGATES else last)  # no text has half of a surrogate pair


def _attribute(test: Test, bindings: Bindings) -> str:
    name = test.field.name

    def has(text: str) -> str:
        place = bindings.bind(name)
        return (
            f"EXISTS (SELECT 1 FROM attributes AS t WHERE t.number = i.number AND t.name = {place}{text}{ONE_BY_ONE})"
        )

    match test:
        case IsNull():
            return has("") if test.is_negated else f"(NOT {has('')})"
        case Comparison(operator=Operator.EQUAL):
            return has(f" AND {OWN_KEY} = {bindings.bind(key_of(test.value))}")
        case Comparison(operator=Operator.NOT_EQUAL):
            key = key_of(test.value)
            comparable = KeyRange(key[0], end=AFTER_CLASS[key[0]]).condition(OWN_KEY, bindings)
            return f"({has(f' AND {comparable}')} AND NOT {has(f' AND {OWN_KEY} = {bindings.bind(key)}')})"
        case In():
            return has(f" AND {OWN_KEY} IN ({bindings.bind_all(map(key_of, test.values))})")
        case Comparison() | Between() | StartsWith():
            allowed = key_range(test)
            require(allowed is not None, f"{test} is not a range")
            return has(f" AND {allowed.condition(OWN_KEY, bindings)}") if allowed else ""
