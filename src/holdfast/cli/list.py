"""``holdfast list``: the instances of a store, newest first."""

import asyncio
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.console import json_text, moment_text, print_aligned, safe, seconds_text, state_text, status_line
from holdfast.cli.explain import LONGEST_KEY, digits_text
from holdfast.cli.store_option import open_read_only
from holdfast.client.views.instances import NEWEST, WHOLE, moment
from holdfast.client.views.report import repaired
from holdfast.core.checks import parse_enum
from holdfast.core.collation import PADDING
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceNotFound, UsageError
from holdfast.storage.records import InstanceId, InstanceRecord

DEFAULT_LIMIT: Final = 50
LARGEST_LIMIT: Final = 10_000


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
        click.echo("holdfast: --status is called --state; the old name works in this release only", err=True)
    given = status if state is None else state
    wanted = None if given is None else parse_enum(InstanceState, given.upper(), "state of an instance")
    records, keys = asyncio.run(_read(store, wanted, workflow, parent, limit))
    if as_json:
        click.echo(json_text([_fields(record, key) for record, key in zip(records, keys, strict=True)]))
    else:
        _show(records, keys, limit)


async def _read(
    store: str | None, state: InstanceState | None, workflow: str | None, parent: str | None, limit: int
) -> tuple[list[InstanceRecord], list[str | None]]:
    """The instances, and of flows their keys."""
    opened = open_read_only(store)
    try:
        of = None
        if parent is not None:
            above = await opened.find_instance(InstanceId(checked_name(parent, "an instance")))
            if above is None:
                raise InstanceNotFound(f"no instance has the id {parent!r}")
            of = above.number
        found = await opened.list_instances(before=NEWEST, limit=limit, state=state, workflow=workflow, parent=of)
        records = [repaired(record)[0] for record in found]
        return records, await asyncio.gather(*(opened.read_key(record.number) for record in records))
    finally:
        await opened.close()


def _show(records: list[InstanceRecord], keys: list[str | None], limit: int) -> None:
    console = Console(highlight=False)
    if not records:
        console.print("No instances.")
        return
    rows = [[Text(name) for name in ("id", "workflow", "state", "started (UTC)", "took")]]
    for record in records:
        took = "" if record.closed_at_ms is None else seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)
        rows.append(
            [
                Text(safe(record.id), "cyan"),
                Text(safe(record.workflow)),
                state_text(record.state),
                Text(moment_text(record.created_at_ms)),
                Text(took),
            ]
        )
    if any(keys):
        rows[0].append(Text("key"))
        for row, key in zip(rows[1:], keys, strict=True):
            row.append(Text() if key is None else digits_text(key.rstrip(PADDING), LONGEST_KEY))
    if any(record.superseded_at_ms is not None for record in records):
        rows[0].append(Text())
        for row, record in zip(rows[1:], records, strict=True):
            row.append(Text("" if record.superseded_at_ms is None else f"earlier, number {record.number}", "dim"))
    if any(record.parent_id is not None for record in records):
        rows[0].append(Text("parent"))
        for row, record in zip(rows[1:], records, strict=True):
            row.append(Text("" if record.parent_id is None else safe(record.parent_id), "dim"))
    if any(record.custom_status is not None for record in records):
        rows[0].append(Text("says"))
        for row, record in zip(rows[1:], records, strict=True):
            row.append(Text(status_line(record.custom_status)))
    print_aligned(console, rows, right=(4,))
    if len(records) == limit:
        console.print(Text(f"the newest {limit}; there may be more: --limit", "dim"))


def _fields(record: InstanceRecord, key: str | None) -> dict[str, Any]:
    return {
        "id": record.id,
        "number": record.number,
        "workflow": record.workflow,
        "version": record.version,
        "state": record.state,
        "status": record.state,  # its former name, in this release only
        "execution": record.execution,
        "turn": record.turn,
        "collation_key": key,
        "blocked": record.blocked,
        "created_at": moment(record.created_at_ms),
        "closed_at": moment(record.closed_at_ms),
        "superseded_at": moment(record.superseded_at_ms),
        "parent": record.parent_id,
        "custom_status": None if record.custom_status is None else WHOLE.of(record.custom_status),
    }
