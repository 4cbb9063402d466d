"""What a filter matches, in plain Python: an independent model of the filter language (F3, F4)."""

import datetime as dt
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from holdfast.core.filters import (
    And,
    Between,
    Comparison,
    Filter,
    In,
    Instant,
    IsNull,
    Kind,
    Length,
    Not,
    Operator,
    Or,
    StartsWith,
    Test,
)

COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.BELOW: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.ABOVE: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


@dataclass(frozen=True)
class ModelInstance:
    """An instance as a filter sees it. Times are in milliseconds."""

    number: int
    id: str
    workflow: str
    version: str | None
    state: str
    created: int
    closed: int | None
    execution: int
    parent: str | None
    root: str
    error: str | None = None
    blocked: str | None = None
    waits: Sequence[str] = ()
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def values_of(self, test: Test) -> list[Any]:
        """What the instance has in the field of a test: nothing, a value, or several."""
        name = test.field.name
        found: Any
        if test.field.is_attribute:
            found = self.attributes.get(name)
        elif name == "duration":
            found = None if self.closed is None else self.closed - self.created
        else:
            found = getattr(self, name)
        if isinstance(found, list | tuple):
            return list(cast("Sequence[Any]", found))
        return [] if found is None else [found]

    def has(self, test: Test) -> bool:
        if test.field.is_attribute:
            return test.field.name in self.attributes
        return bool(self.values_of(test))


def matches(found: Filter | None, row: ModelInstance) -> bool:
    match found:
        case None:
            return True
        case And():
            return all(matches(part, row) for part in found.parts)
        case Or():
            return any(matches(part, row) for part in found.parts)
        case Not():
            return not matches(found.part, row)
        case IsNull():
            return row.has(found) is found.is_negated
        case _:
            return _holds(found, row)


def _holds(test: Comparison | In | Between | StartsWith, row: ModelInstance) -> bool:
    values = row.values_of(test)
    if isinstance(test, StartsWith):
        return any(isinstance(value, str) and value.startswith(test.prefix) for value in values)
    if isinstance(test, In):
        return any(
            _compares(Operator.EQUAL, value, given, test.field.kind) for value in values for given in test.values
        )
    if isinstance(test, Between):
        return any(
            _compares(Operator.AT_LEAST, value, test.low, test.field.kind)
            and _compares(Operator.AT_MOST, value, test.high, test.field.kind)
            for value in values
        )
    if test.operator is Operator.NOT_EQUAL:
        same = [value for value in values if _class(value) == _class(plain(test.value, test.field.kind))]
        return bool(same) and not any(_compares(Operator.EQUAL, value, test.value, test.field.kind) for value in values)
    return any(_compares(test.operator, value, test.value, test.field.kind) for value in values)


def plain(given: Any, kind: Kind) -> Any:
    """The value of a filter as Python has it: times and durations of fields in milliseconds, of attributes as times."""
    if isinstance(given, Length):
        return given.microseconds / 1000
    if isinstance(given, Instant):
        if kind is Kind.TIME:
            return given.microseconds / 1000
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=given.microseconds)
    return given


def _class(value: object) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)


def _compares(how: Operator, value: Any, given: Any, kind: Kind) -> bool:
    other = plain(given, kind)
    return _class(value) == _class(other) and COMPARE[how](value, other)
