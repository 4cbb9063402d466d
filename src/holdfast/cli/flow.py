"""``holdfast flow``: check a flow, run it, and draw it."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.cli.applications import load_module
from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.flow_instances import draw_instance, run
from holdfast.cli.stores import JsonOption, StoreOption
from holdfast.cli.texts import json_text, safe
from holdfast.errors import FlowError, FlowProblem, UsageError

flow = typer.Typer(name="flow", no_args_is_help=True, help="Check, run and draw flows: workflows as graphs.")

flow.command()(run)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A flow in YAML.")]
STYLES: Final = {"error": "bold red", "warning": "yellow"}


@flow.command()
def check(
    file: FileArgument,
    *,
    app: Annotated[
        list[str] | None,
        typer.Option("--app", "-a", metavar="APP", help="FILE.py or MODULE with the activities; may be given again."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a flow and tell everything that is wrong with it, each with its line.

    Without --app the names of activities and their arguments cannot be checked. Exit code 0: it can run. 1: it cannot.
    """
    from holdfast.flows.checking import Known  # noqa: PLC0415 - reading flows needs libraries that nothing else does
    from holdfast.flows.known import known_in, workflows_in  # noqa: PLC0415
    from holdfast.flows.loading import load_file  # noqa: PLC0415

    known = Known(has_module=_has_module)
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
        typer.echo(json_text(answer))
    else:
        _show(file, problems, left_out, summary, checked=bool(app))
    if not summary:
        raise typer.Exit(EXIT_BAD_NEWS)


def _show(
    file: str, problems: tuple[FlowProblem, ...], left_out: int, summary: Mapping[str, object], *, checked: bool
) -> None:
    console = Console(highlight=False)
    for problem in problems:
        kind = (problem.severity, STYLES[problem.severity])
        line = Text.assemble((f"{safe(file)}:{problem.line}", "cyan"), ": ", kind, f": {safe(str(problem))}")
        console.print(line, soft_wrap=True)
    if left_out:
        console.print(Text.assemble((safe(file), "cyan"), f": and {left_out:,} more"), soft_wrap=True)
    if summary:
        verdict = Text.assemble((f"{safe(file)} is fine", "bold green"))
        activities = _count(summary["activities"], "activity", "activities")
        verdict.append(f": flow {safe(str(summary['flow']))}, {activities}")
        verdict.append("" if checked else "; which activities there are was not checked (--app APP)")
    else:
        errors = left_out + sum(problem.severity == "error" for problem in problems)
        verdict = Text.assemble((_count(errors, "problem", "problems"), "bold red"), f" in {safe(file)}")
    console.print(verdict, soft_wrap=True)


def _count(number: object, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _has_module(name: str) -> bool:
    """Whether there is a module of that name, here or installed. Nothing is imported."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@flow.command()
def draw(
    file: FileArgument,
    *,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PATH", help="Where to write; else it is printed.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Mermaid text instead of SVG.")] = False,
    instance_id: Annotated[
        str | None, typer.Option("--instance", metavar="ID", help="Draw it with the digits of this instance.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Draw a flow as SVG, or as Mermaid text; with --instance how far that has come, on the version it stays with."""
    from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

    loaded = Flow.load(file)
    if instance_id is not None:
        drawn = draw_instance(loaded, instance_id, store, mermaid=mermaid)
    else:
        drawn = loaded.to_mermaid() if mermaid else loaded.to_svg()
    if output is None:
        typer.echo(drawn, nl=False)
        return
    try:
        Path(output).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output!r} cannot be written: {error.strerror or error}") from None
    typer.echo(f"{output}: flow {safe(loaded.name)}, {_count(len(loaded.definition.nodes), 'activity', 'activities')}")
