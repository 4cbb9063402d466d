"""``holdfast builds``: the builds of the code, the open instances that need each, and waiting until one is drained."""

import asyncio
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.authoring.validation import checked_duration_ms
from holdfast.cli.console import (
    Column,
    count_text,
    json_text,
    moment_text,
    print_items,
    print_line,
    print_message,
    safe,
    standard_output,
)
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.store_option import read_store
from holdfast.client.views.builds import Builds, BuildView, StrandedInstances, read_build, read_builds
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.versions import version_text
from holdfast.errors import UsageError
from holdfast.storage.contract import OpenableStore

POLL_SECONDS: Final = 1.0
MOST_SHARE: Final = 20
"""The pause after a read, which counts all open instances, as a multiple of its duration."""


def builds(
    *,
    wait_drained: str | None = None,
    timeout: float | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """List the builds of the workers of a store, or wait until one is drained."""
    if wait_drained is None:
        if timeout is not None:
            raise UsageError("--timeout is for --wait-drained BUILD")
        _print_builds(read_store(store, read_builds), as_json=as_json)
        return
    seconds = None if timeout is None else checked_duration_ms(timeout, "--timeout") / MILLISECONDS
    found = read_store(store, lambda opened: _drained(opened, wait_drained, seconds, is_quiet=as_json))
    if as_json:
        click.echo(json_text(_build_fields(found)))
    elif found.is_drained:
        print_line(standard_output(), Text(f"build {safe(found.build)} is drained: {_workers(found)}"))
    if not found.is_drained:
        print_message(f"build {safe(found.build)} is not drained after {seconds:g} s: {_needs(found)}")
        raise SystemExit(EXIT_NEGATIVE)


async def _drained(store: OpenableStore, build: str, seconds: float | None, *, is_quiet: bool) -> BuildView:
    """The build when it is drained, or after the time-out. A line is printed whenever its numbers have changed."""
    loop = asyncio.get_running_loop()
    ends_at = None if seconds is None else loop.time() + seconds
    shown = ""
    while True:
        began = loop.time()
        found = await read_build(store, build)
        now = loop.time()
        if found.is_drained or (ends_at is not None and now >= ends_at):
            return found
        line = f"build {safe(build)}: {_needs(found)}"
        if line != shown and not is_quiet:
            print_line(standard_output(), Text(line))
            shown = line
        pause = max(POLL_SECONDS, MOST_SHARE * (now - began))
        await asyncio.sleep(pause if ends_at is None else min(pause, max(0.0, ends_at - now)))


def _needs(view: BuildView) -> str:
    """What still needs a build, in a sentence."""
    parts: list[str] = []
    if view.held:
        parts.append(f"{count_text(view.held, 'open instance')} held by its workers")
    if view.only_here:
        parts.append(f"{count_text(view.only_here, 'open instance')} that only it can run")
    if view.activities:
        parts.append(count_text(view.activities, "activity"))
    return ", ".join([*parts, _workers(view)])


def _workers(view: BuildView) -> str:
    return count_text(view.workers, "live worker")


def _print_builds(found: Builds, *, as_json: bool) -> None:
    if as_json:
        fields = {
            "builds": [_build_fields(each) for each in found.builds],
            "stranded": [msgspec.structs.asdict(each) for each in found.stranded],
        }
        click.echo(json_text(fields))
        return
    empty = "No builds: the store has seen no worker within a day."
    print_items(found.builds, BUILD_COLUMNS, _build_fields, as_json=False, empty=empty)
    for each in found.stranded:
        print_line(standard_output(), _stranded_line(each))


def _stranded_line(each: StrandedInstances) -> Text:
    version = "" if each.version is None else f", {version_text(each.version)}"
    return Text.assemble(
        (count_text(each.instances, "open instance"), "bold red"),
        " of ",
        (safe(each.workflow), "bold"),
        f"{safe(version)}, which no worker here has had within a day: start a worker that has it",
    )


def _last_seen(view: BuildView) -> Text:
    if view.workers:
        return Text("now", "green")
    return Text(moment_text(round(view.last_seen.timestamp() * MILLISECONDS)))


BUILD_COLUMNS: Final[tuple[Column[BuildView], ...]] = (
    Column("build", lambda view: view.build, "cyan"),
    Column("workers", lambda view: str(view.workers), is_right=True),
    Column("open", lambda view: str(view.open), is_right=True),
    Column("only here", lambda view: str(view.only_here), is_right=True),
    Column("activities", lambda view: str(view.activities), is_right=True),
    Column("blocked", lambda view: Text(str(view.blocked), "bold red" if view.blocked else ""), is_right=True),
    Column("last seen (UTC)", _last_seen),
)


def _build_fields(view: BuildView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(view)
    return {**fields, "is_drained": view.is_drained}
