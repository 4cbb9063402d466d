"""``holdfast list``: the instances of a store, newest first."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.console import (
    Column,
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
from holdfast.client.views.instances import NEWEST, WHOLE, moment
from holdfast.client.views.report import repaired
from holdfast.core.checks import parse_enum
from holdfast.core.collation import PADDING
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import UsageError
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

    @property
    def status(self) -> Any:
        return None if self.record.custom_status is None else WHOLE.of(self.record.custom_status)


def list_instances(
    *,
    state: str | None = None,
    status: str | None = None,
    workflow: str | None = None,
    parent: str | None = None,
    limit: int = DEFAULT_LIMIT,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """List the instances of a store, newest first."""
    if not 1 <= limit <= LARGEST_LIMIT:
        raise UsageError(f"--limit must be from 1 to {LARGEST_LIMIT:,}, not {limit}")
    if status is not None:
        print_message("--status is called --state; the old name works in this release only")
    name = status if state is None else state
    wanted = None if name is None else parse_enum(InstanceState, name.upper(), "state of an instance")

    async def read(opened: Store) -> list[Listed]:
        number = None
        if parent is not None:
            number = (await require_instance(opened, checked_name(parent, "an instance"))).number
        found = await opened.list_instances(before=NEWEST, limit=limit, state=wanted, workflow=workflow, parent=number)
        keys = await asyncio.gather(*(opened.read_key(record.number) for record in found))
        return [Listed(repaired(record)[0], key) for record, key in zip(found, keys, strict=True)]

    listed = read_store(store, read)
    print_items(listed, COLUMNS, _fields, as_json=as_json, empty="No instances.")
    if len(listed) == limit and not as_json:
        note = f"the newest {limit}; there may be more: --limit"
        print_line(standard_output(), Text(note, "dim"))


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
    }
