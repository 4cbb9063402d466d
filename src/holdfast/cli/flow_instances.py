"""``holdfast flow run`` and ``flow draw --instance``: a flow from a file, and how far an instance of it has come."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.authoring.names import checked_name
from holdfast.authoring.registry import Registry
from holdfast.cli.applications import Application, load_module
from holdfast.cli.run import fulfil, wish_of
from holdfast.cli.stores import look_into
from holdfast.cli.texts import safe
from holdfast.client.flow_views import read_child_keys, read_composite, read_events, read_flow
from holdfast.core.collation.digits import padded
from holdfast.core.flow.definition import ChildAction, RunAction
from holdfast.core.flow.reading import FlowSnapshot, version_of
from holdfast.core.gates import IdPolicy
from holdfast.errors import InstanceNotFound, UsageError
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.storage.contract import InstanceId, Store

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    wish = wish_of(
        ("flow", "run", file, *options),
        Application(modules, flow, (flow, *children)),
        input_json=input_json,
        instance_id=instance_id,
        policy=policy,
        payload_limit=payload_limit,
        store=store,
    )
    _note_unknown(flow, children, modules)
    fulfil(wish, as_json=as_json)


def _require_no_activities(*flows: "Workflow[..., Any]") -> None:
    """Without any code a flow can wait, start others and tell them; it cannot run activities."""
    for node in (node for flow in flows for node in cast("Flow", flow).definition.nodes):
        if isinstance(node.action, RunAction):
            raise UsageError(f"{node.id!r} runs {node.action.activity!r}: name the code that has it with --app")


def _note_unknown(flow: "Workflow[..., Any]", others: "Sequence[Workflow[..., Any]]", modules: Iterable[Any]) -> None:
    """Say which children nobody here can run: a worker that has them may, or it is a mistake."""
    known = Registry(modules, flows=(flow, *others)).workflows
    nodes = [node for each in (flow, *others) for node in cast("Flow", each).definition.nodes]
    for node in nodes:
        if isinstance(node.action, ChildAction) and node.action.workflow not in known:
            said = f"nothing here is called {node.action.workflow!r}, which {node.id!r} starts"
            click.echo(f"holdfast: {safe(said)}: it waits for a worker that has it (--app, --with)", err=True)


def _as_known(flow: "Flow", modules: "Sequence[ModuleType]") -> "Workflow[..., Any]":
    """The flow itself, or the same one where a module has loaded it, too."""
    values: list[Any] = [value for module in modules for value in vars(module).values()]
    for value in values:
        if getattr(value, "is_flow", False) and (value.name, value.fingerprint) == (flow.name, flow.fingerprint):
            return cast("Workflow[..., Any]", value)
    return flow


def draw_instance(flow: "Flow", instance_id: str, store: str | None, *, mermaid: bool) -> str:
    """The flow with the digits of an instance, as the version that the instance stays with."""
    from holdfast.flows.drawing import draw_svg  # noqa: PLC0415 - see above
    from holdfast.flows.mermaid import draw_mermaid  # noqa: PLC0415

    reading, key, children = asyncio.run(_read(flow, instance_id, store))
    digits = {name: node.digit.character for name, node in reading.nodes.items()}
    if mermaid:
        return draw_mermaid(reading.definition, digits=digits)
    return draw_svg(reading.definition, digits=digits, children=children, key=key)


async def _read(
    flow: "Flow", instance_id: str, store: str | None
) -> "tuple[FlowSnapshot, str, Mapping[str, Sequence[str]]]":
    named = InstanceId(checked_name(instance_id, "an instance"))
    opened = look_into(store)
    try:
        return await _read_instance(opened, flow, named)
    finally:
        await opened.close()


async def _read_instance(
    store: Store, flow: "Flow", named: InstanceId
) -> "tuple[FlowSnapshot, str, Mapping[str, Sequence[str]]]":
    record = await store.find(named)
    if record is None:
        raise InstanceNotFound(f"no instance has the id {named!r}")
    if record.workflow != flow.name:
        raise UsageError(f"{named!r} is an instance of {record.workflow!r}, not of {flow.name!r}")
    events = await read_events(store, record)
    reading = await read_flow(store, record, events)
    if reading is None:
        raise UsageError(f"{named!r} has not begun, so it has no digits yet")
    if version_of(events) != flow.hash:
        click.echo(f"holdfast: {safe(named)} stays with another version of the flow, which is drawn here", err=True)
    children = await read_child_keys(store, record, reading)
    composite = await read_composite(store, record, reading, reading.key)
    return reading, composite if children and composite is not None else padded(reading.key), children
