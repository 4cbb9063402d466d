"""``holdfast flow run``, ``flow check`` and ``flow draw``: flows from YAML files."""

import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from rich.text import Text

from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_name
from holdfast.cli.application import Application, load_module
from holdfast.cli.console import count_text, json_text, print_line, print_message, safe, standard_output
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.run import execute, parse_request
from holdfast.cli.store_option import read_store, require_instance
from holdfast.client.views.flows import read_child_keys, read_composite, read_events, read_flow
from holdfast.core.admission import IdPolicy
from holdfast.core.collation import padded
from holdfast.core.flow.definition import ChildAction, RunAction
from holdfast.core.flow.snapshot import FlowSnapshot, version_of
from holdfast.errors import FlowError, FlowProblem, UsageError
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.storage.contract import Store

if TYPE_CHECKING:
    from types import ModuleType

    from holdfast.authoring.workflow import Workflow
    from holdfast.flows.flow import Flow


def run(
    file: str,
    *,
    app: Sequence[str] = (),
    others: Sequence[str] = (),
    input_json: str | None = None,
    instance_id: str | None = None,
    policy: str = IdPolicy.IDEMPOTENT.value,
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Run a flow in this process and show its activities. The same id continues its instance, or gives its result."""
    from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

    modules = tuple(map(load_module, app))
    flow, *children = (_as_known(Flow.load(each, modules=modules), modules) for each in (file, *others))
    if not modules:
        _require_no_activities(flow, *children)
    options = [word for name in app for word in ("--app", name)]
    options += [word for name in others for word in ("--with", name)]
    request = parse_request(
        ("flow", "run", file, *options),
        Application(modules, flow, (flow, *children)),
        input_json=input_json,
        instance_id=instance_id,
        policy=policy,
        payload_limit=payload_limit,
        store=store,
    )
    _note_unknown(flow, children, modules)
    execute(request, as_json=as_json)


def _require_no_activities(*flows: "Workflow[..., Any]") -> None:
    """Raises `UsageError` for a flow with activities: without code it can only wait, raise events and start flows."""
    for node in (node for flow in flows for node in cast("Flow", flow).definition.nodes):
        if isinstance(node.action, RunAction):
            raise UsageError(f"{node.id!r} runs {node.action.activity!r}: name the code that has it with --app")


def _note_unknown(flow: "Workflow[..., Any]", others: "Sequence[Workflow[..., Any]]", modules: Iterable[Any]) -> None:
    """Warns of children that this process cannot run: another worker may have them, or the name is wrong."""
    known = Registry(modules, flows=(flow, *others)).workflows
    nodes = [node for each in (flow, *others) for node in cast("Flow", each).definition.nodes]
    for node in nodes:
        if isinstance(node.action, ChildAction) and node.action.workflow not in known:
            unknown = f"{node.id!r} starts {node.action.workflow!r}, which is not loaded here"
            print_message(f"{safe(unknown)}: it waits for a worker that has it (--app, --with)")


def _as_known(flow: "Flow", modules: "Sequence[ModuleType]") -> "Workflow[..., Any]":
    """The flow, or the object of the same flow that a module has loaded."""
    values: list[Any] = [value for module in modules for value in vars(module).values()]
    for value in values:
        if getattr(value, "is_flow", False) and (value.name, value.fingerprint) == (flow.name, flow.fingerprint):
            return cast("Workflow[..., Any]", value)
    return flow


@dataclass(frozen=True, slots=True)
class DrawnInstance:
    """The state of an instance that a drawing shows."""

    flow: FlowSnapshot
    key: str
    """With the keys of its children, if these can be read."""
    children: Mapping[str, Sequence[str]]
    """The keys of children, by node."""


def draw_instance(flow: "Flow", instance_id: str, store: str | None, *, mermaid: bool) -> str:
    """Draws the digits of an instance on the version of the flow that it runs on."""
    from holdfast.flows.mermaid import draw_mermaid  # noqa: PLC0415
    from holdfast.flows.svg import draw_svg  # noqa: PLC0415 - see above

    checked_name(instance_id, "an instance")
    drawn = read_store(store, lambda opened: _read_instance(opened, flow, instance_id))
    digits = {name: node.digit.character for name, node in drawn.flow.nodes.items()}
    if mermaid:
        return draw_mermaid(drawn.flow.definition, digits=digits)
    return draw_svg(drawn.flow.definition, digits=digits, children=drawn.children, key=drawn.key)


async def _read_instance(store: Store, flow: "Flow", instance_id: str) -> DrawnInstance:
    record = await require_instance(store, instance_id)
    if record.workflow != flow.name:
        raise UsageError(f"{instance_id!r} is an instance of {record.workflow!r}, not of {flow.name!r}")
    events = await read_events(store, record)
    snapshot = await read_flow(store, record, events)
    if snapshot is None:
        raise UsageError(f"{instance_id!r} has not begun, so it has no digits yet")
    if version_of(events) != flow.hash:
        print_message(f"{safe(instance_id)} runs on another version of the flow, which is drawn here")
    children = await read_child_keys(store, record, snapshot)
    composite = await read_composite(store, record, snapshot, snapshot.key)
    key = composite if children and composite is not None else padded(snapshot.key)
    return DrawnInstance(snapshot, key, children)


SEVERITY_STYLES: Final = {"error": "bold red", "warning": "yellow"}


def check(file: str, *, app: Sequence[str] = (), as_json: bool = False) -> None:
    """Read a flow and report every problem with its line. Without `app` activities and arguments are not checked."""
    from holdfast.flows.language.checker import KnownNames, names_in_modules, workflows_in  # noqa: PLC0415
    from holdfast.flows.language.parser import load_file  # noqa: PLC0415

    known = KnownNames(has_module=_has_module)
    if app:
        modules = [load_module(each) for each in app]
        known = replace(names_in_modules(modules), workflows=workflows_in(modules))
    left_out = 0
    try:
        loaded = load_file(Path(file), known)
    except FlowError as error:
        if not error.problems:
            raise
        problems = error.problems
        left_out = error.left_out
        summary: dict[str, Any] = {}
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
        raise SystemExit(EXIT_NEGATIVE)


def _show(
    file: str, problems: tuple[FlowProblem, ...], left_out: int, summary: Mapping[str, Any], *, checked: bool
) -> None:
    console = standard_output()
    for problem in problems:
        kind = (problem.severity, SEVERITY_STYLES[problem.severity])
        line = Text.assemble((f"{safe(file)}:{problem.line}", "cyan"), ": ", kind, f": {safe(str(problem))}")
        print_line(console, line)
    if left_out:
        print_line(console, Text.assemble((safe(file), "cyan"), f": and {left_out:,} more"))
    if summary:
        verdict = Text.assemble((f"{safe(file)} is fine", "bold green"))
        activities = count_text(summary["activities"], "activity")
        verdict.append(f": flow {safe(str(summary['flow']))}, {activities}")
        verdict.append("" if checked else "; activities were not checked (--app APP)")
    else:
        errors = left_out + sum(problem.severity == "error" for problem in problems)
        verdict = Text.assemble((count_text(errors, "problem"), "bold red"), f" in {safe(file)}")
    print_line(console, verdict)


def _has_module(name: str) -> bool:
    """Whether a module can be found, in the current folder or installed. It is not imported."""
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
    """Draw a flow as SVG or Mermaid text, with the progress of an instance if one is named."""
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
