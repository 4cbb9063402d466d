"""Candidates for shell completion that are read from the store: ids of instances, names of workflows, queues and so on.

Completion prints nothing but candidates: without a store, or with one that cannot be read, there are none.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.cli.store_option import read_store
from holdfast.client.requests import live_workflows
from holdfast.client.views.instances import NEWEST
from holdfast.client.views.overview import read_queues
from holdfast.compose import open_contract_of
from holdfast.errors import HoldfastError
from holdfast.storage.contract import OpenableStore

MOST: Final = 200
"""Rows that are read for candidates."""


def read_candidates(kind: str, store: str | None, incomplete: str) -> list[str]:
    """The values in the store that begin with `incomplete`."""
    try:
        found = read_store(store, READ[kind])
    except HoldfastError:
        return []
    return [value for value in dict.fromkeys(found) if value.startswith(incomplete)]


async def _instances(store: OpenableStore) -> list[str]:
    return [record.id for record in await store.list_instances(before=NEWEST, limit=MOST)]


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


READ: Final[dict[str, Callable[[OpenableStore], Awaitable[list[str]]]]] = {
    "instances": _instances,
    "workflows": _workflows,
    "queues": _queues,
    "activities": _activities,
    "exec ids": _exec_ids,
}
