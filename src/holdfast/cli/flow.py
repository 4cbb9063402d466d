"""``holdfast flow``: check a flow, run it, and draw it."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.applications import load_module
from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.flow_instances import draw_instance
from holdfast.cli.texts import count_text, json_text, print_line, safe
from holdfast.errors import FlowError, FlowProblem, UsageError

STYLES: Final = {"error": "bold red", "warning": "yellow"}


def check(file: str, *, app: Sequence[str] = (), as_json: bool = False) -> None:
    """Read a flow and report every problem with its line. Without `app` activities and arguments are not checked."""
    from holdfast.flows.checking import KnownNames  # noqa: PLC0415 - reading flows needs libraries that nothing else does
    from holdfast.flows.known import known_in, workflows_in  # noqa: PLC0415
    from holdfast.flows.loading import load_file  # noqa: PLC0415

    known = KnownNames(has_module=_has_module)
    if app:
        modules = [load_module(each) for each in app]
        known = replace(known_in(modules), workflows=workflows_in(modules))
    left_out = 0
    try:
        loaded = load_file(Path(file), known)
    except FlowError as error:
        if not error.problems:
            raise
        problems, left_out, summary = error.problems, error.left_out, {}
    else:
        nodes = loaded.definition.nodes
        problems = loaded.warnings
        summary = {"flow": loaded.definition.name, "activities": len(nodes), "edges": sum(len(n.after) for n in nodes)}
    if as_json:
        answer = {"file": file, "fine": bool(summary), **summary, "problems": [one._asdict() for one in problems]}
        answer |= {"left_out": left_out} if left_out else {}
        click.echo(json_text(answer))
    else:
        _show(file, problems, left_out, summary, checked=bool(app))
    if not summary:
        raise SystemExit(EXIT_BAD_NEWS)


def _show(
    file: str, problems: tuple[FlowProblem, ...], left_out: int, summary: Mapping[str, Any], *, checked: bool
) -> None:
    console = Console(highlight=False)
    for problem in problems:
        kind = (problem.severity, STYLES[problem.severity])
        line = Text.assemble((f"{safe(file)}:{problem.line}", "cyan"), ": ", kind, f": {safe(str(problem))}")
        print_line(console, line)
    if left_out:
        print_line(console, Text.assemble((safe(file), "cyan"), f": and {left_out:,} more"))
    if summary:
        verdict = Text.assemble((f"{safe(file)} is fine", "bold green"))
        activities = count_text(summary["activities"], "activity")
        verdict.append(f": flow {safe(str(summary['flow']))}, {activities}")
        verdict.append("" if checked else "; which activities there are was not checked (--app APP)")
    else:
        errors = left_out + sum(problem.severity == "error" for problem in problems)
        verdict = Text.assemble((count_text(errors, "problem"), "bold red"), f" in {safe(file)}")
    print_line(console, verdict)


def _has_module(name: str) -> bool:
    """Whether there is a module of that name, here or installed. Nothing is imported."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def draw(
    file: str,
    *,
    output: str | None = None,
    mermaid: bool = False,
    instance_id: str | None = None,
    store: str | None = None,
) -> None:
    """Draw a flow as SVG or Mermaid text; with an instance its progress, on the version that it started with."""
    from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

    loaded = Flow.load(file)
    if instance_id is not None:
        drawn = draw_instance(loaded, instance_id, store, mermaid=mermaid)
    else:
        drawn = loaded.to_mermaid() if mermaid else loaded.to_svg()
    if output is None:
        click.echo(drawn, nl=False)
        return
    try:
        Path(output).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output!r} cannot be written: {error.strerror or error}") from None
    click.echo(f"{output}: flow {safe(loaded.name)}, {count_text(len(loaded.definition.nodes), 'activity')}")
