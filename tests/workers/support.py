"""What the tests of workers look at, through the contract of stores alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast as hf
from holdfast.audit.auditor import inspect
from holdfast.runtime.platform import Platform
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceRecord

POLL_SECONDS = 0.005


def by_leases(**more: Any) -> Platform:
    """A world in which deaths on this host are not seen at once (W11): leases alone decide."""
    return Platform(detect_local_deaths=False, **more)


def sound(store: str) -> None:
    """The audit finds nothing."""
    assert not inspect(store).problems


async def instance(client: hf.Client, instance_id: str) -> InstanceRecord:
    record = await client._session.store.find_instance(InstanceId(instance_id))
    assert record is not None, f"{instance_id} is not there"
    return record


async def attempts(client: hf.Client, instance_id: str) -> list[AttemptRecord]:
    record = await instance(client, instance_id)
    return await client._session.store.read_attempts(record.number, record.execution)


async def stored(client: hf.Client, instance_id: str) -> list[tuple[str, int, int]]:
    """The state of every attempt, with its failures and losses."""
    return [(str(each.state), each.failures, each.losses) for each in await attempts(client, instance_id)]


async def told(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until the store says that something is so."""
    while not await condition():  # noqa: ASYNC110 - that is what it is for
        await asyncio.sleep(POLL_SECONDS)
