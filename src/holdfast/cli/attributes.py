"""``holdfast attributes``: show, set and delete the attributes of an instance."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.console import Column, json_text, print_items, print_line, safe, standard_output, value_text
from holdfast.cli.store_option import read_store, require_instance, use_client
from holdfast.client.client import Client
from holdfast.client.views.instances import attribute_values
from holdfast.compose import search_store_of
from holdfast.core.attributes import AttributeValue
from holdfast.errors import UsageError
from holdfast.storage.contract import Store

LONGEST_VALUE: Final = 200
KINDS: Final[tuple[tuple[type[object], str], ...]] = (
    (str, "text"),
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (dt.datetime, "datetime"),
    (list, "texts"),
)
"""The type of each value; a bool is an int, too."""


def attributes(
    instance_id: str,
    changes: Sequence[str] = (),
    delete: Sequence[str] = (),
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show the attributes of an instance, after changing some of them."""
    wanted = parse_changes(changes, delete)

    async def read(opened: Store) -> dict[str, Any]:
        record = await require_instance(opened, checked_name(instance_id, "an instance"))
        return attribute_values(await search_store_of(opened).read_attributes(record.number))

    async def change(client: Client) -> dict[str, Any]:
        return dict(await client.get(instance_id).set_attributes(wanted))

    found = use_client(store, change) if wanted else read_store(store, read)
    if as_json:
        click.echo(json_text({"id": instance_id, "attributes": found}))
    elif found:
        print_items(sorted(found.items()), COLUMNS, _fields, as_json=False, empty="")
    else:
        print_line(standard_output(), Text.assemble((safe(instance_id), "bold cyan"), " has no attributes"))


def _fields(item: tuple[str, Any]) -> dict[str, Any]:
    return dict([item])


def parse_changes(changes: Sequence[str], delete: Sequence[str]) -> dict[str, AttributeValue | None]:
    """The changes of the command line: values by name, None for an attribute to delete."""
    wanted: dict[str, AttributeValue | None] = {}
    for name, value in (*map(_assignment, changes), *((name, None) for name in delete)):
        if name in wanted:
            raise UsageError(f"the attribute {name!r} is named twice")
        wanted[name] = value
    return wanted


def _assignment(text: str) -> tuple[str, AttributeValue]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"an attribute is written NAME=VALUE, not {text!r}; --delete {text} deletes one")
    return name.strip(), parse_value(value)


def parse_value(text: str) -> AttributeValue:
    """The value that a text stands for: JSON, or a time in ISO 8601 with a zone; anything else is the text itself."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _time(text) or text
    return text if value is None else value  # the client refuses other types of JSON


def _time(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _shown(item: tuple[str, Any]) -> str:
    value = item[1].isoformat() if isinstance(item[1], dt.datetime) else item[1]
    return value_text(value, LONGEST_VALUE)


def _kind(item: tuple[str, Any]) -> str:
    return next((name for kind, name in KINDS if isinstance(item[1], kind)), "unreadable")


COLUMNS: Final[tuple[Column[tuple[str, Any]], ...]] = (
    Column("attribute", lambda item: item[0], "cyan"),
    Column("type", _kind, "dim"),
    Column("value", _shown),
)
