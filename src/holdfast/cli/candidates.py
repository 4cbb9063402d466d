"""Candidates for shell completion that are read from the store: ids of instances, names of workflows, queues and so on.

Completion prints nothing but candidates: without a store, or with one that cannot be read, there are none.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.cli.store_option import read_store, require_instance
from holdfast.client.activity_names import open_names
from holdfast.client.requests import live_workflows
from holdfast.client.views.instances import NEWEST
from holdfast.client.views.overview import read_queues
from holdfast.client.views.report import read_execution
from holdfast.compose import open_contract_of
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import HoldfastError
from holdfast.storage.contract import OpenableStore

MOST: Final = 200
"""Rows that are read for candidates."""


def read_candidates(kind: str, store: str | None, incomplete: str, instance_id: str | None = None) -> list[str]:
    """The values in the store that begin with `incomplete`. `instance_id`: the instance that the command names."""

    async def read(opened: OpenableStore) -> list[str]:
        if kind in READ:
            return await READ[kind](opened)
        return [] if instance_id is None else await READ_OF_INSTANCE[kind](opened, instance_id)

    try:
        found = read_store(store, read)
    except HoldfastError:
        return []
    return [value for value in dict.fromkeys(found) if value.startswith(incomplete)]


async def _instances(store: OpenableStore) -> list[str]:
    return [record.id for record in await store.list_instances(before=NEWEST, limit=MOST)]


async def _halted(store: OpenableStore) -> list[str]:
    states = (InstanceState.PAUSED, InstanceState.BLOCKED)
    found = [await store.list_instances(before=NEWEST, limit=MOST, state=state) for state in states]
    return [record.id for records in found for record in records]


async def _workflows(store: OpenableStore) -> list[str]:
    used = [record.workflow for record in await store.list_instances(before=NEWEST, limit=MOST)]
    return sorted({*used, *await live_workflows(store)})


async def _queues(store: OpenableStore) -> list[str]:
    return [queue.name for queue in await read_queues(store)]


async def _activities(store: OpenableStore) -> list[str]:
    offers = await open_contract_of(store).open_activities(limit=MOST)
    return sorted({offer.attempt.name for offer in offers})


async def _exec_ids(store: OpenableStore) -> list[str]:
    return [offer.exec_id for offer in await open_contract_of(store).open_activities(limit=MOST)]


async def _held_nodes(store: OpenableStore, instance_id: str) -> list[str]:
    flow = (await read_execution(store, await require_instance(store, instance_id))).flow
    return [] if flow is None else [node.node.id for node in flow.in_order() if node.held is not None]


async def _open_activities(store: OpenableStore, instance_id: str) -> list[str]:
    return open_names((await read_execution(store, await require_instance(store, instance_id))).steps)


READ: Final[dict[str, Callable[[OpenableStore], Awaitable[list[str]]]]] = {
    "instances": _instances,
    "halted instances": _halted,
    "workflows": _workflows,
    "queues": _queues,
    "activities": _activities,
    "exec ids": _exec_ids,
}
READ_OF_INSTANCE: Final[dict[str, Callable[[OpenableStore, str], Awaitable[list[str]]]]] = {
    "held nodes": _held_nodes,
    "open activities": _open_activities,
}
