"""Requests of clients (C2): inserts a row, waits for the answer of a worker, and finds requests that no worker takes.

`wait_for_row` is shared with reports about activities: it polls with a back-off, and at once when another process
notifies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from holdfast.client.instance_calls import InstanceCalls
from holdfast.client.views.overview import registered_names
from holdfast.compose import open_contract_of
from holdfast.core.leases import WorkerState
from holdfast.errors import InvalidOption, StoreError
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import OpenContractStore, Store
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.outcomes import Applied, Failed
from holdfast.storage.records import RequestRecord, RequestState

ANSWER_SECONDS: Final = 2.0
"""How long a command waits for the answer to its row."""
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 0.5
"""The pause between two reads of a row doubles between these."""
Answer = TypeVar("Answer")


async def insert_row(calls: InstanceCalls, row: InsertRequest | InsertReport) -> bool:
    """Commit a row of the open contract. Returns whether it is new: a row with its id may exist."""
    open_contract_of(calls.store)
    outcome = await calls.local.committer.commit(row)
    match outcome:
        case Applied():
            calls.session.rows_inserted(None)  # a worker of this process does not see its own process's writes
            return outcome.changed > 0
        case Failed():
            raise outcome.error
        case _:
            raise StoreError(f"the insert of {row!r} had the outcome {outcome!r}")


async def wait_for_row(
    session: StoreSession,
    read: Callable[[], Awaitable[Answer | None]],
    is_answered: Callable[[Answer], bool],
    seconds: float,
) -> Answer | None:
    """Read a row until it is answered, at most for `seconds`. Returns it as it was read last."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        changes = session.changes.rounds()
        try:
            await anext(changes)  # registers for the next change before the read, so that none is missed
            found = await read()
            left = ends_at - loop.time()
            if (found is not None and is_answered(found)) or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, left)):
                    await anext(changes)
        finally:
            await changes.aclose()
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def submit_request(
    calls: InstanceCalls, request: InsertRequest, seconds: float = ANSWER_SECONDS
) -> RequestRecord:
    """Insert a request and wait for its answer. A request that is still NEW after `seconds` is returned as such.

    A row with the same id is the same request; `InvalidOption` if it asks for something else.
    """
    is_new = await insert_row(calls, request)
    found = await wait_for_request(calls, request.request_id, seconds)
    if not is_new and (difference := _difference(request, found)):
        raise InvalidOption(
            f"the request id {request.request_id!r} is taken by a request with another {difference}; give another id"
        )
    return found


async def wait_for_request(calls: InstanceCalls, request_id: str, seconds: float) -> RequestRecord:
    """The request, when it is answered or `seconds` have passed."""
    store = open_contract_of(calls.store)
    found = await wait_for_row(
        calls.session,
        lambda: store.read_request(request_id),
        lambda record: record.state != RequestState.NEW,
        seconds,
    )
    if found is None:
        raise StoreError(f"the request {request_id!r} was deleted before its answer was read")
    return found


def _difference(request: InsertRequest, found: RequestRecord) -> str | None:
    """The first column of a stored request that differs from a request under the same id."""
    for name in (
        *("kind", "workflow", "instance_id", "event_name", "input", "policy"),
        *("start_at_ms", "deadline_after_ms", "manual"),
    ):
        if getattr(request, name) != getattr(found, name):
            return name
    return None


async def live_workflows(store: Store) -> set[str]:
    """The names of the workflows that live workers have registered."""
    now_ms = store.now_ms()
    return {
        name
        for worker in await store.workers()
        if worker.state == WorkerState.ACTIVE and worker.deadline_ms > now_ms
        for name in registered_names(worker.workflows) or ()
    }


async def unserved_workflows(store: OpenContractStore) -> dict[str, int]:
    """The workflows that no live worker has, with the number of NEW requests for a start of each."""
    served = await live_workflows(store)
    return {name: count for name, count in (await store.count_new_requests()).items() if name not in served}
