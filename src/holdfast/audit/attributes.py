"""Checks the attributes of one instance: names, types and keys (F1)."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from holdfast.audit.problems import Finding, Rule
from holdfast.core.attributes import (
    MOST_STORED,
    AttributeType,
    StoredAttribute,
    checked_attribute_name,
    read_value,
    store_value,
)
from holdfast.errors import InvalidAttribute
from holdfast.storage.relational.raw_tables import RawAttribute, RawInstance


def check_attributes(instance: RawInstance, rows: Sequence[RawAttribute]) -> Iterator[Finding]:
    """Checks that every value is one that could have been set, and is found at the place of its instance."""
    names = 0
    for name, values in groupby(rows, key=lambda row: row.name):
        names += 1
        problem = _problem_of(name, list(values), instance.created_at_ms)
        if problem is not None:
            yield Rule.ATTRIBUTES_AGREE, f"its attribute {name[:100]!r} {problem}"
    if names > MOST_STORED:
        yield Rule.ATTRIBUTES_AGREE, f"it has {names:,} attributes, and {MOST_STORED} are possible"


def _problem_of(name: str, rows: Sequence[RawAttribute], created_at_ms: int) -> str | None:
    kinds = {row.type for row in rows}
    if len(kinds) > 1 or not kinds <= set(AttributeType):
        return f"has the type {', '.join(sorted(kinds))}"
    if [row.position for row in rows] != list(range(len(rows))):
        return "has keys with gaps between them"
    if any(row.created_at_ms != created_at_ms for row in rows):
        return "has another time than its instance, so that lists do not have it in its place"
    stored = StoredAttribute(AttributeType(rows[0].type), tuple(row.value for row in rows))
    try:
        checked_attribute_name(name)
        same = store_value(name, read_value(stored)) == stored
    except (ValueError, OverflowError, InvalidAttribute) as error:
        return f"cannot be read: {error}"
    return None if same else "has keys that are not those of its value"
