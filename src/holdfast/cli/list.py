"""``holdfast list``: the instances of a store, newest first."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.console import (
    Column,
    json_text,
    moment_text,
    print_items,
    print_line,
    print_message,
    seconds_text,
    standard_output,
    state_text,
    status_text,
)
from holdfast.cli.explain import LONGEST_KEY, digits_text
from holdfast.cli.store_option import read_store, require_instance
from holdfast.client.search import Count, count_matches, list_page, parse_order
from holdfast.client.views.instances import WHOLE, attribute_values, moment
from holdfast.client.views.report import repaired
from holdfast.core.checks import parse_enum
from holdfast.core.collation import PADDING
from holdfast.core.filters import And, Comparison, Field, Filter, Operator, parse
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InvalidFilter, UsageError
from holdfast.storage.contract import Store
from holdfast.storage.records import InstanceRecord

DEFAULT_LIMIT: Final = 50
LARGEST_LIMIT: Final = 10_000
LONGEST_STATUS: Final = 80


@dataclass(frozen=True, slots=True)
class Listed:
    """An instance, and the stored key of a flow."""

    record: InstanceRecord
    key: str | None
    attributes: dict[str, Any]

    @property
    def status(self) -> Any:
        return None if self.record.custom_status is None else WHOLE.of(self.record.custom_status)


def list_instances(
    *,
    filter: str | None = None,  # noqa: A002 - the name of the argument
    state: str | None = None,
    status: str | None = None,
    workflow: str | None = None,
    parent: str | None = None,
    since: str | None = None,
    order: str = "created",
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
    count: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """List the instances of a store that match a filter, newest first."""
    if not 1 <= limit <= LARGEST_LIMIT:
        raise UsageError(f"--limit must be from 1 to {LARGEST_LIMIT:,}, not {limit}")
    if status is not None:
        print_message("--status is called --state; the old name works in this release only")
    found = _filter_of(filter, status if state is None else state, workflow, parent, since)
    page_order = parse_order(order)

    async def read(opened: Store) -> tuple[list[Listed], str | None]:
        if parent is not None:
            await require_instance(opened, checked_name(parent, "an instance"))
        rows, following = await list_page(opened, found, order=page_order, limit=limit, cursor=cursor)
        keys = await asyncio.gather(*(opened.read_key(row.instance.number) for row in rows))
        return [
            Listed(repaired(row.instance)[0], key, attribute_values(row.attributes))
            for row, key in zip(rows, keys, strict=True)
        ], following

    if count:
        _print_count(read_store(store, lambda opened: count_matches(opened, found, exact=False)), as_json=as_json)
        return
    listed, following = read_store(store, read)
    print_items(listed, COLUMNS, _fields, as_json=as_json, empty="No instances.")
    if following is not None:  # on one line, whatever its width, so that it can be copied
        more = f"there are more: --cursor {following}"
        if as_json:
            click.echo(f"holdfast: {more}", err=True)
        else:
            print_line(standard_output(is_whole=True), Text(more, "dim"))


def _filter_of(
    given: str | None, state: str | None, workflow: str | None, parent: str | None, since: str | None
) -> Filter | None:
    """The filter and the options as one filter."""
    parts: list[Filter] = [] if given is None else [parse(given)]
    if state is not None:
        wanted = parse_enum(InstanceState, state.upper(), "state of an instance")
        parts.append(Comparison(Field("state"), Operator.EQUAL, wanted.value))
    if workflow is not None:
        parts.append(Comparison(Field("workflow"), Operator.EQUAL, workflow))
    if parent is not None:
        parts.append(Comparison(Field("parent"), Operator.EQUAL, parent))
    if since is not None:
        parts.append(_since(since))
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def _since(text: str) -> Filter:
    """The test of `--since`: a duration before now, or a time."""
    for written in (f"now - {text}", text):
        try:
            found = parse(f"created >= {written}")
        except InvalidFilter:
            continue
        if isinstance(found, Comparison):
            return found
    raise UsageError(f"--since takes a duration such as 90m or 2d, or a time such as today, not {text!r}")


def _print_count(count: Count, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({"at_least": count.at_least, "exact": count.exact}))
    else:
        print_line(standard_output(), Text(str(count)))


def _took(item: Listed) -> str:
    record = item.record
    return "" if record.closed_at_ms is None else seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)


def _starts(item: Listed) -> str:
    record = item.record
    return moment_text(record.start_at_ms) if record.turn == 0 and record.start_at_ms is not None else ""


def _key(item: Listed) -> Text:
    return Text() if item.key is None else digits_text(item.key.rstrip(PADDING), LONGEST_KEY)


def _earlier(item: Listed) -> str:
    return "" if item.record.superseded_at_ms is None else f"earlier, number {item.record.number}"


def _status(item: Listed) -> str:
    return "" if item.status is None else status_text(item.status, LONGEST_STATUS)


COLUMNS: Final[tuple[Column[Listed], ...]] = (
    Column("id", lambda item: item.record.id, "cyan"),
    Column("workflow", lambda item: item.record.workflow),
    Column("state", lambda item: state_text(item.record.state)),
    Column("started (UTC)", lambda item: moment_text(item.record.created_at_ms)),
    Column("took", _took, is_right=True),
    Column("starts at (UTC)", _starts, is_optional=True),
    Column("key", _key, is_optional=True),
    Column("", _earlier, "dim", is_optional=True),
    Column("parent", lambda item: item.record.parent_id or "", "dim", is_optional=True),
    Column("status", _status, is_optional=True),
)


def _fields(item: Listed) -> dict[str, Any]:
    record = item.record
    return {
        "id": record.id,
        "number": record.number,
        "workflow": record.workflow,
        "version": record.version,
        "state": record.state,
        "status": record.state,  # deprecated name of `state`
        "execution": record.execution,
        "turn": record.turn,
        "collation_key": item.key,
        "blocked": record.blocked,
        "created_at": moment(record.created_at_ms),
        "start_at": moment(record.start_at_ms),
        "closed_at": moment(record.closed_at_ms),
        "superseded_at": moment(record.superseded_at_ms),
        "parent": record.parent_id,
        "custom_status": item.status,
        "attributes": item.attributes,
    }
