"""``holdfast replay`` and ``holdfast patches``: the instances of a store against the code to be deployed (R15, R16)."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
from rich.console import Console
from rich.text import Text

from holdfast.audit.patches import PatchesReport, PatchReport, count_patches
from holdfast.audit.replay_report import MisfitGroup, ReplayReport, replay_store
from holdfast.audit.replays import turns_of
from holdfast.authoring.registry import Registry
from holdfast.cli.application import load_module
from holdfast.cli.bar import ProgressBar
from holdfast.cli.console import (
    Column,
    count_text,
    json_text,
    print_items,
    print_line,
    safe,
    safe_lines,
    standard_output,
)
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.store_option import read_store
from holdfast.client.views.history import export as exported
from holdfast.compose import checkable
from holdfast.errors import UsageError
from holdfast.storage.records import InstanceRecord, LoadedInstance

CLOSED: Final = 20
MOST_CLOSED: Final = 1_000_000
SHOWN_IDS: Final = 5


def replay(
    applications: Sequence[str],
    *,
    workflow: str | None = None,
    closed: int = CLOSED,
    export: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Replay the instances of a store on the code of APP, without changing anything."""
    if not 0 <= closed <= MOST_CLOSED:
        raise UsageError(f"--closed must be from 0 to {MOST_CLOSED:,}, not {closed}")
    folder = None if export is None else _folder(export)
    registry = _registry(applications, workflow)

    def failing(record: InstanceRecord, loaded: LoadedInstance) -> None:
        if folder is not None:
            _write(folder, record, loaded)

    with ProgressBar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        report = read_store(
            store,
            lambda opened: replay_store(
                checkable(opened),
                registry,
                workflow=workflow,
                closed=closed,
                progress=lambda done, total: bar.show(done, total, "instance"),
                failing=failing,
            ),
        )
    if as_json:
        click.echo(json_text(_replay_fields(report)))
    else:
        _print_replay(report)
    if report.failed:
        raise SystemExit(EXIT_NEGATIVE)


def _registry(applications: Sequence[str], workflow: str | None) -> Registry:
    registry = Registry([load_module(source) for source in applications])
    named = ", ".join(applications)
    if not registry.workflows:
        raise UsageError(f"{named}: no workflow; mark functions with @hf.workflow")
    if workflow is not None and workflow not in registry.workflows:
        raise UsageError(f"{named}: no workflow {workflow!r}; it has {', '.join(sorted(registry.workflows))}")
    return registry


def _folder(export: str) -> Path:
    folder = Path(export)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--export {export}: {error.strerror or error}") from error
    return folder


def _write(folder: Path, record: InstanceRecord, loaded: LoadedInstance) -> None:
    """Write the history of an instance for `holdfast.testing.Replayer`; one without a turn has none."""
    if loaded.history:
        name = f"{quote(record.id, safe='')[:100]}-{record.number}.json"
        text = exported(record.id, record.workflow, record.execution, turns_of(loaded))
        try:
            folder.joinpath(name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{folder / name} cannot be written: {error.strerror or error}") from error


def _print_replay(report: ReplayReport) -> None:
    console = standard_output()
    for group in sorted(report.groups.values(), key=lambda each: (-each.count, each.workflow)):
        print_line(console, Text.assemble((safe(group.workflow), "bold"), f"  {_members(group)}"))
        for line in safe_lines(group.instances[0].reason).splitlines():
            print_line(console, Text(line, "red"), "  ")
    for name, number in sorted(report.not_checked.items()):
        _print_not_checked(console, name, number)
    checked = f"{count_text(report.open, 'open instance')} and {count_text(report.closed, 'closed one')}"
    if report.failed:
        failed = f"{report.open_failed:,} open and {report.closed_failed:,} closed do not fit"
        print_line(console, Text.assemble(f"{checked} checked: ", (failed, "bold red")))
    else:
        print_line(console, Text.assemble(f"{checked} checked: ", ("all fit this code", "bold green")))


def _print_not_checked(console: Console, workflow: str, number: int) -> None:
    text = f"not checked: {count_text(number, 'open instance')} of {safe(workflow)}, not in APP"
    print_line(console, Text(text, "dim"))


def _members(group: MisfitGroup) -> str:
    shown = ", ".join(safe(each.id) for each in group.instances[:SHOWN_IDS])
    more = group.count - min(len(group.instances), SHOWN_IDS)
    return f"{count_text(group.count, 'instance')}: {shown}" + (f" and {more:,} more" if more else "")


def _replay_fields(report: ReplayReport) -> dict[str, Any]:
    return {
        "open": {"checked": report.open, "failed": report.open_failed},
        "closed": {"checked": report.closed, "failed": report.closed_failed},
        "not_checked": dict(sorted(report.not_checked.items())),
        "groups": [
            {
                "workflow": group.workflow,
                "count": group.count,
                "reason": group.instances[0].reason,
                "instances": [
                    {"id": each.id, "number": each.number, "state": each.state, "reason": each.reason}
                    for each in group.instances
                ],
            }
            for group in report.groups.values()
        ],
    }


# ---------------------------------------------------------------- patches


def patches(
    applications: Sequence[str], *, workflow: str | None = None, store: str | None = None, as_json: bool = False
) -> None:
    """Count the open instances on each branch of each patch of APP."""
    registry = _registry(applications, workflow)
    with ProgressBar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        report = read_store(
            store,
            lambda opened: count_patches(
                checkable(opened), registry, workflow, lambda done, total: bar.show(done, total, "instance")
            ),
        )
    if as_json:
        click.echo(json_text(_patches_fields(report)))
        return
    print_items(report.patches, COLUMNS, _patch_fields, as_json=False, empty="No patches.")
    console = standard_output()
    for name, (number, ids) in report.broken.items():
        shown = ", ".join(safe(each) for each in ids[:SHOWN_IDS])
        note = f"{count_text(number, 'open instance')} of {safe(name)} do not replay on this code: {shown}"
        print_line(console, Text(f"{note}; holdfast replay has the differences", "red"))
    for name, number in report.unknown.items():
        _print_not_checked(console, name, number)


def _verdict(item: PatchReport) -> Text:
    if item.is_safe:
        return Text("yes", "green")
    shown = safe(item.examples[0]) if item.examples else ""
    return Text(f"no: {item.in_the_way:,}, such as {shown}", "yellow")


COLUMNS: Final[tuple[Column[PatchReport], ...]] = (
    Column("workflow", lambda item: item.workflow),
    Column("version", lambda item: item.version, is_optional=True),
    Column("patch", lambda item: item.patch, "cyan"),
    Column("new", lambda item: f"{item.new:,}", is_right=True),
    Column("old", lambda item: f"{item.old:,}", is_right=True),
    Column("undecided", lambda item: f"{item.undecided:,}", is_right=True),
    Column("safe to remove", _verdict),
)


def _patch_fields(item: PatchReport) -> dict[str, Any]:
    return {
        "workflow": item.workflow,
        "version": item.version,
        "patch": item.patch,
        "new": item.new,
        "old": item.old,
        "undecided": item.undecided,
        "safe_to_remove": item.is_safe,
        "in_the_way": item.in_the_way,
        "examples": list(item.examples),
    }


def _patches_fields(report: PatchesReport) -> dict[str, Any]:
    return {
        "patches": [_patch_fields(item) for item in report.patches],
        "do_not_replay": {
            name: {"count": number, "examples": list(ids)} for name, (number, ids) in report.broken.items()
        },
        "not_checked": report.unknown,
    }
