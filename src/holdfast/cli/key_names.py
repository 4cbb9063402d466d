"""The names of the activities behind the digits of a key: from the flow in a file, or from one that is in the store."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.cli.stores import is_there, look_into, store_path
from holdfast.client.flow_views import read_events
from holdfast.client.pages import NEWEST
from holdfast.core.collation import Composite
from holdfast.core.collation.composite import PADDING
from holdfast.core.flow.definition import ChildAction, FlowDefinition, decode_definition
from holdfast.core.flow.reading import version_of
from holdfast.errors import HoldfastError, UsageError
from holdfast.storage.contract import InstanceRecord, Store

MOST_LOOKED_AT: Final = 1_000
"""The newest instances of a store, among which one with the key is looked for."""
FILES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class ActivityNames:
    """The ids of the activities of a key, in its order; by position those of the children that are inside."""

    ids: Sequence[str]
    flow: str = ""
    children: Mapping[int, Sequence["ActivityNames | None"]] = field(
        default_factory=dict[int, Sequence["ActivityNames | None"]]
    )

    def child(self, at: int, number: int) -> "ActivityNames | None":
        """Those of a child of the activity at this position."""
        several = self.children.get(at, ())
        return several[number] if number < len(several) else None


def names_of_flow(composite: Composite, flow: str, store: str | None) -> ActivityNames:
    """The names in a flow: a file, or the name of one that the store has an instance of."""
    if flow.endswith(FILES):
        from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

        definition = Flow.load(Path(flow)).definition
        return ActivityNames([node.id for node in definition.nodes], definition.name)
    return asyncio.run(_of_flow(composite, flow, store))


def find_names(composite: Composite, store: str | None) -> ActivityNames | None:
    """The names in the flow that has an instance with this key; None if there is none, or no store, or several."""
    place = store_path(store)
    if store is None and not is_there(place):
        return None
    if store is not None:
        return asyncio.run(_of_key(composite, store))
    with suppress(HoldfastError):  # nobody has asked for this store
        return asyncio.run(_of_key(composite, store))
    return None


async def _of_flow(composite: Composite, flow: str, store: str | None) -> ActivityNames:
    opened = look_into(store)
    try:
        definition = await _newest(opened, flow)
        if definition is None:
            raise UsageError(f"the store has no instance of a flow {flow!r}; name a file (FILE.yaml), or --activities")
        found = await _names(opened, definition, composite)
    finally:
        await opened.close()
    return found or ActivityNames([node.id for node in definition.nodes], definition.name)  # whose number does not fit


async def _of_key(composite: Composite, store: str | None) -> ActivityNames | None:
    opened = look_into(store)
    try:
        newest = await opened.list_instances(before=NEWEST, limit=MOST_LOOKED_AT)
        keys = await asyncio.gather(*(opened.read_key(record.number) for record in newest))
        found: dict[str, InstanceRecord] = {}
        for record, key in zip(newest, keys, strict=True):
            if key is not None and key.rstrip(PADDING) == composite.digits:
                found.setdefault(record.workflow, record)
        if len(found) != 1:
            return None
        (record,) = found.values()
        definition = await _of_instance(opened, record)
        return None if definition is None else await _names(opened, definition, composite)
    finally:
        await opened.close()


async def _names(store: Store, definition: FlowDefinition, composite: Composite) -> ActivityNames | None:
    """The names in a key and in those inside it; None if it is no key of this version of the flow."""
    if len(definition.nodes) != len(composite.digits):
        return None
    children: dict[int, list[ActivityNames | None]] = {}
    for at, several in composite.children.items():
        action = definition.nodes[at].action
        inner = await _newest(store, action.workflow) if isinstance(action, ChildAction) else None
        if inner is not None:
            children[at] = [await _names(store, inner, child) for child in several]
    return ActivityNames([node.id for node in definition.nodes], definition.name, children)


async def _newest(store: Store, flow: str) -> FlowDefinition | None:
    """The version of a flow that its newest instance stays with."""
    for record in await store.list_instances(before=NEWEST, limit=1, workflow=flow):
        return await _of_instance(store, record)
    return None


async def _of_instance(store: Store, record: InstanceRecord) -> FlowDefinition | None:
    digest = version_of(await read_events(store, record))
    stored = await store.read_flow(digest) if digest else None
    return None if stored is None else decode_definition(stored)
