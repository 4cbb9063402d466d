"""``holdfast delete`` and ``prune`` delete closed instances; ``holdfast archive`` reads an archive (R31-R35)."""

import json
import sys
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.cli.console import Column, count_text, json_text, moment_text, print_items, print_line, safe
from holdfast.cli.console import standard_output as output
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.store_option import existing_store, require_instance, store_path, use_client
from holdfast.client.archive import ArchivedInstance, read_archive
from holdfast.client.client import Client, store_of
from holdfast.client.retention import PrunedGroup, PruneReport
from holdfast.compose import display_name
from holdfast.errors import InstanceNotFound, UsageError
from holdfast.storage.contract import deletable

BYTES_IN_MB: Final = 2**20


def delete(instance_id: str, *, yes: bool = False, store: str | None = None, as_json: bool = False) -> None:
    """Delete a closed instance with all its descendants."""
    name = display_name(existing_store(store))

    async def run(client: Client) -> int:
        if not yes:
            opened = store_of(client)
            record = await require_instance(opened, instance_id)
            held = deletable(opened)
            members = 1 if held is None else len(await held.read_families([record.number]))
            with_others = f" with {count_text(members - 1, 'descendant')}" if members > 1 else ""
            _confirm(f"Delete {safe(instance_id)} ({record.workflow}, {record.state}){with_others} from {name}?")
        return await client.delete(instance_id)

    deleted = use_client(store, run)
    if as_json:
        click.echo(json_text({"store": name, "id": instance_id, "instances": deleted}))
    else:
        what = count_text(deleted, "instance")
        print_line(output(), Text.assemble((f"{safe(instance_id)} is deleted", "bold green"), f": {what}"))


def prune(
    *,
    filter: str | None = None,  # noqa: A002 - the name of the argument
    older_than: str | None = None,
    state: tuple[str, ...] = (),
    workflow: str | None = None,
    keep_last: int | None = None,
    archive: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Delete the closed instances that a rule selects."""
    name = display_name(existing_store(store))
    rule: dict[str, Any] = {
        "older_than": older_than,
        "state": list(state) or None,
        "workflow": workflow,
        "keep_last": keep_last,
    }
    shows = not as_json and sys.stderr.isatty()

    async def run(client: Client) -> PruneReport:
        if yes and not dry_run:
            return await client.prune(filter, **rule, archive=archive, progress=_progress(shows, "deleted"))
        plan = await client.prune(filter, **rule, dry_run=True, progress=_progress(shows, "found"))
        _clear(shows)
        if dry_run or not (plan.instances or plan.executions):
            return plan
        if not as_json:
            _show_groups(plan)
        where = "" if archive is None else f" after they are archived in {safe(archive)}"
        _confirm(f"Delete {count_text(plan.instances, 'instance')} from {name}{where}?")
        return await client.prune(filter, **rule, archive=archive, progress=_progress(shows, "deleted"))

    report = use_client(store, run)
    _clear(shows)
    if as_json:
        click.echo(json_text({"store": name, **msgspec.to_builtins(report)}))
        return
    if yes or dry_run:
        _show_groups(report)
    _show_verdict(report, name)


def _confirm(question: str) -> None:
    """Ask on a terminal; without one `--yes` is needed, so that no script deletes by mistake."""
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nothing was deleted: without a terminal, confirm with --yes")
    if not click.confirm(question, err=True):
        click.echo("holdfast: nothing was deleted", err=True)
        raise SystemExit(EXIT_NEGATIVE)


def _progress(is_shown: bool, verb: str) -> Any:
    def show(instances: int) -> None:
        if is_shown:
            click.echo(f"\r{count_text(instances, 'instance')} {verb}\x1b[K", nl=False, err=True)

    return show


def _clear(is_shown: bool) -> None:
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)


GROUPS: Final[tuple[Column[PrunedGroup], ...]] = (
    Column("workflow", lambda group: group.workflow, "cyan"),
    Column("state", lambda group: group.state),
    Column("families", lambda group: f"{group.families:,}", is_right=True),
    Column("instances", lambda group: f"{group.instances:,}", is_right=True),
)


def _show_groups(report: PruneReport) -> None:
    if report.groups:
        print_items(report.groups, GROUPS, msgspec.to_builtins, as_json=False, empty="")


def _show_verdict(report: PruneReport, name: str) -> None:
    what = count_text(report.instances, "instance")
    if report.dry_run and not report.instances:
        verdict = Text(f"the rule selects nothing in {safe(name)}; nothing was deleted")
    elif report.dry_run:
        verdict = Text.assemble(
            ("nothing was deleted", "bold yellow"), f" from {safe(name)}; without --dry-run: {what}"
        )
    else:
        verdict = Text.assemble((f"{what} deleted", "bold green"), f" from {safe(name)}")
    more: list[str] = []
    if report.executions:
        more.append(f"{count_text(report.executions, 'execution')} of open instances deleted")
    if report.archived:
        more.append(f"{count_text(report.archived, 'instance')} archived")
    if report.bytes_returned:
        more.append(f"{max(0.1, report.bytes_returned / BYTES_IN_MB):,.1f} MB returned to the file system")
    kept = {"open": "a member is open", "held": "the attribute keep", "too young": "a member ended later"}
    more += [f"{count_text(count, 'family')} kept ({kept.get(why, why)})" for why, count in report.kept.items()]
    print_line(output(), Text.assemble(verdict, "".join(f"; {each}" for each in more)))


# ---------------------------------------------------------------- archives


def archive(file: str, *, instance_id: str | None = None, as_json: bool = False) -> None:
    """List the instances of an archive, or show one of them as JSON."""
    store_path(file)
    found = read_archive(file, instance_id)
    if instance_id is not None:
        shown = list(found)
        if not shown:
            raise InstanceNotFound(f"no instance in {file} has the id {instance_id!r}")
        for each in shown:
            click.echo(json_text(each))
        return
    if as_json:
        for each in found:
            click.echo(json_text(_archived_fields(each), indented=False))
        return
    print_items(list(map(_without_values, found)), ARCHIVED, _archived_fields, as_json=False, empty="No instances.")


def _without_values(instance: ArchivedInstance) -> ArchivedInstance:
    return msgspec.structs.replace(instance, executions=[], updates=[], state_values={}, input=msgspec.Raw(b"null"))


ARCHIVED: Final[tuple[Column[ArchivedInstance], ...]] = (
    Column("id", lambda item: item.id, "cyan"),
    Column("workflow", lambda item: item.workflow),
    Column("state", lambda item: item.state),
    Column("started (UTC)", lambda item: moment_text(item.created_at_ms)),
    Column("ended (UTC)", lambda item: "" if item.closed_at_ms is None else moment_text(item.closed_at_ms)),
    Column("parent", lambda item: item.parent or "", "dim", is_optional=True),
)


def _archived_fields(item: ArchivedInstance) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(msgspec.json.encode(item))
    return {name: value for name, value in fields.items() if name not in ("executions", "updates", "state_values")}
