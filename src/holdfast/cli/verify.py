"""``holdfast verify``: the audit of a store against the rules, the fsck of workflows."""

from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.audit import Report, Rule, inspect
from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.stores import existing_store, shown
from holdfast.cli.texts import json_text, safe

MOST_PROBLEMS: Final = 1_000
"""Problems that are printed for people; JSON has all of them."""


def verify(store: str | None = None, as_json: bool = False) -> None:
    """Check a store against every rule that its tables can show; nothing is changed."""
    path = existing_store(store)
    report = inspect(path)
    if as_json:
        click.echo(json_text({"store": shown(path), **msgspec.to_builtins(report)}))
    else:
        _show(report, shown(path))
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
        console.print(line, soft_wrap=True)
    if len(report.problems) > MOST_PROBLEMS:
        console.print(Text(f"and {len(report.problems) - MOST_PROBLEMS} more (--json has all)", "dim"))
    looked_at = (
        f"{_count(report.instances, 'instance')}, {_count(report.turns, 'turn')} and "
        f"{_count(report.attempts, 'attempt')} checked against {len(Rule)} rules"
    )
    if report.problems:
        concerned = len({problem.instance for problem in report.problems})
        verdict = Text.assemble((f"{_count(len(report.problems), 'problem')} in {concerned}", "bold red"))
        verdict.append(f" of {looked_at} ({safe(path)})")
    else:
        verdict = Text.assemble((f"{safe(path)} is sound", "bold green"), f": {looked_at}")
    console.print(verdict, soft_wrap=True)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
