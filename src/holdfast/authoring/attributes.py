"""``hf.attributes``: typed values of the instance that filters find it by, once the turn is committed (F1, F2)."""

from collections.abc import Iterator, MutableMapping
from typing import Final

from holdfast.authoring.workflow_api import current, readable_run
from holdfast.core.attributes import (
    MOST_ATTRIBUTES,
    AttributeValue,
    checked_attribute_name,
    read_value,
    store_value,
)
from holdfast.errors import InvalidAttribute


class WorkflowAttributes(MutableMapping[str, AttributeValue]):
    """The attributes of the instance: ``hf.attributes["customer"] = "acme"``. Continue-as-new carries them over.

    A value is a str, int, float, bool, a datetime with a time zone, or a list of str. A list that is read is a copy:
    change it, and assign it again. From outside: ``client.list('a.customer = "acme"')`` and
    `Handle.set_attributes`, whose changes the code reads as messages (F10).
    """

    def __setitem__(self, name: str, value: AttributeValue) -> None:
        attributes = current("hf.attributes").attribute_values
        stored = store_value(checked_attribute_name(name), value)
        if name not in attributes.values and len(attributes.values) >= MOST_ATTRIBUTES:
            raise InvalidAttribute(f"an instance has at most {MOST_ATTRIBUTES} attributes; {name!r} would be one more")
        attributes.set(name, stored)

    def __getitem__(self, name: str) -> AttributeValue:
        return read_value(readable_run("hf.attributes").attributes[name])

    def __delitem__(self, name: str) -> None:
        attributes = current("hf.attributes").attribute_values
        if name not in attributes.values:
            raise KeyError(name)
        attributes.delete(name)

    def __contains__(self, name: object) -> bool:
        return name in readable_run("hf.attributes").attributes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(readable_run("hf.attributes").attributes))

    def __len__(self) -> int:
        return len(readable_run("hf.attributes").attributes)


attributes: Final = WorkflowAttributes()
