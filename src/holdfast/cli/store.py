"""``holdfast verify`` audits a store; ``holdfast migrate`` migrates its tables or prints the SQL."""

import sys
from typing import Final

import click
import msgspec
from rich.text import Text

from holdfast.audit.auditor import inspect
from holdfast.audit.problems import Report, Rule
from holdfast.cli.bar import ProgressBar
from holdfast.cli.console import count_text, json_text, print_line, safe, standard_output
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.store_option import existing_store, store_path, use_client
from holdfast.client.client import Client
from holdfast.compose import display_name, printed_client_roles, printed_schema
from holdfast.errors import UsageError

MOST_PROBLEMS: Final = 1_000
"""Problems that are printed for people; JSON has all of the report."""


def verify(store: str | None = None, as_json: bool = False) -> None:
    """Check every row of a store against the rules of the engine; nothing is changed."""
    path = existing_store(store)
    with ProgressBar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        report = inspect(path, lambda done, total: bar.show(done, total, "instance"))
    if as_json:
        click.echo(json_text({"store": display_name(path), **msgspec.to_builtins(report)}))
    else:
        _show(report, display_name(path))
    if report.problems:
        raise SystemExit(EXIT_NEGATIVE)


def _show(report: Report, path: str) -> None:
    console = standard_output()
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
        print_line(console, Text(f"and {found - MOST_PROBLEMS:,} more (--json has {len(report.problems):,})", "dim"))
    checked = (
        f"{count_text(report.instances, 'instance')}, {count_text(report.turns, 'turn')} and "
        f"{count_text(report.attempts, 'attempt')} checked against {len(Rule)} rules"
    )
    if report.problems:
        damaged = len({problem.instance for problem in report.problems})
        verdict = Text.assemble((f"{count_text(found, 'problem')} in {damaged}", "bold red"))
        verdict.append(f" of {checked} ({safe(path)})")
    else:
        verdict = Text.assemble((f"{safe(path)} is sound", "bold green"), f": {checked}")
    print_line(console, verdict)


def migrate(*, only_print: bool = False, roles: bool = False, after: int = 0, store: str | None = None) -> None:
    """Migrate the tables of a store to this release, or print the SQL that does it on PostgreSQL."""
    if roles and (after or not only_print):
        raise UsageError("--roles prints SQL and creates nothing: write holdfast migrate --print --roles")
    if only_print:
        url = store_path(store)
        if not isinstance(url, str):
            raise UsageError(
                "only the tables of a PostgreSQL store can be printed; a SQLite file is migrated when it is opened"
            )
        click.echo(printed_client_roles(url) if roles else printed_schema(url, after))
        return

    async def opened(_: Client) -> None:
        """Opening a store migrates it."""

    use_client(store, opened, may_be_empty=True)
    click.echo(f"{safe(display_name(existing_store(store)))} is up to date")
