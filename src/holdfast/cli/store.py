"""``holdfast verify``: the audit of a store against the rules, the fsck of workflows.

``holdfast migrate``: bring the tables of a store up to this release, or print what would do it.
"""

import asyncio
import shutil
import sys
from typing import Final, Self

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.audit.auditor import inspect
from holdfast.audit.problems import Report, Rule
from holdfast.cli.console import count_text, json_text, print_line, safe
from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.store_option import StoreName, existing_store, store_path
from holdfast.client.client import connect
from holdfast.compose import display_name, printed_schema
from holdfast.errors import UsageError

MOST_PROBLEMS: Final = 1_000
"""Problems that are printed for people; JSON has those that the report keeps."""
WIDEST_BAR: Final = 40


class _Bar:
    """A line on the terminal that says how far the audit has come, and is gone when it ends."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, done: int, total: int) -> None:
        if self._is_shown:
            click.echo(f"\r{bar_text(done, total, shutil.get_terminal_size().columns)}\x1b[K", nl=False, err=True)


def bar_text(done: int, total: int, columns: int) -> str:
    """The bar with its counts, no wider than the terminal. Instances that came meanwhile are not counted in `total`."""
    part = min(1.0, done / total) if total else 1.0
    counts = f" {part:4.0%}  {done:,} of {count_text(total, 'instance')}"
    width = max(0, min(WIDEST_BAR, columns - len(counts) - len("[]") - 1))
    filled = int(width * part)
    return f"[{'#' * filled}{'.' * (width - filled)}]{counts}"[: max(0, columns - 1)]


def verify(store: str | None = None, as_json: bool = False) -> None:
    """Check a store against every rule that its tables can show; nothing is changed."""
    path = existing_store(store)
    with _Bar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        report = inspect(path, bar.show)
    if as_json:
        click.echo(json_text({"store": display_name(path), **msgspec.to_builtins(report)}))
    else:
        _show(report, display_name(path))
    if report.problems:
        raise SystemExit(EXIT_BAD_NEWS)


def _show(report: Report, path: str) -> None:
    console = Console(highlight=False)
    for problem in report.problems[:MOST_PROBLEMS]:
        line = Text.assemble(
            (safe(problem.instance or "the store"), "cyan"),
            "  ",
            (problem.rule, "bold red"),
            f"  {safe(problem.text)}",
        )
        print_line(console, line)
    found = len(report.problems) + report.left_out
    if found > MOST_PROBLEMS:
        console.print(Text(f"and {found - MOST_PROBLEMS:,} more (--json has {len(report.problems):,})", "dim"))
    looked_at = (
        f"{count_text(report.instances, 'instance')}, {count_text(report.turns, 'turn')} and "
        f"{count_text(report.attempts, 'attempt')} checked against {len(Rule)} rules"
    )
    if report.problems:
        concerned = len({problem.instance for problem in report.problems})
        verdict = Text.assemble((f"{count_text(found, 'problem')} in {concerned}", "bold red"))
        verdict.append(f" of {looked_at} ({safe(path)})")
    else:
        verdict = Text.assemble((f"{safe(path)} is sound", "bold green"), f": {looked_at}")
    print_line(console, verdict)


def migrate(*, only_print: bool = False, after: int = 0, store: str | None = None) -> None:
    """Bring the tables of a store up to this release, or print the SQL that does it on PostgreSQL."""
    place = store_path(store) if only_print else existing_store(store)
    if not only_print:
        asyncio.run(_migrate(place))
        click.echo(f"{safe(display_name(place))} is up to date")
        return
    if not isinstance(place, str):
        raise UsageError("only the tables of a PostgreSQL store can be printed; a SQLite file is migrated when opened")
    click.echo(printed_schema(place, after))


async def _migrate(place: StoreName) -> None:
    client = await connect(place)
    await client.close()
