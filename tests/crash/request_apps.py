"""Requests of every kind and a traced start, and a program that handles them (`tests.crash.program`).

The rows have fixed ids, so that a process which continues after a crash inserts the same rows again.
"""

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.client.requests import insert_row, wait_for_request
from holdfast.runtime.platform import Platform
from holdfast.storage.members.contract_rows import InsertRequest

PATIENCE_SECONDS = 60.0
LATER_MS = 300
EXPECTED = [True, 2, 3]


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.workflow(name="one")
async def one(number: int) -> int:
    return await step(number)


@hf.workflow(name="waits")
async def waits() -> None:
    await hf.event("never")


async def is_cancelled(handle: hf.Handle[object]) -> bool:
    try:
        await handle.result()
    except hf.WorkflowCancelled:
        return True
    return False


async def finish(store: str, _workflow: str, hook: KillAt | None) -> list[object]:
    """Insert the rows, start the traced instance, and wait for the three results."""
    async with hf.Engine(
        store, workflows=[one, waits], activities=[step], _platform=Platform(fault_hook=hook)
    ) as engine:
        calls = engine._calls
        start_at_ms = calls.store.now_ms() + LATER_MS
        for row in (
            InsertRequest(request_id="start", workflow="waits", instance_id="waits"),
            InsertRequest(
                request_id="later", workflow="one", instance_id="later", input="[1]", start_at_ms=start_at_ms
            ),
            InsertRequest(request_id="by hand", workflow="one", instance_id="by hand", input="[9]", manual=True),
        ):
            await insert_row(calls, row)
        await wait_for_request(calls, "start", PATIENCE_SECONDS)
        await insert_row(calls, InsertRequest(request_id="cancel", kind="cancel", instance_id="waits"))
        traced: hf.Handle[int] = await engine.start(one, 2, id="traced", trace=True)
        await wait_for_request(calls, "later", PATIENCE_SECONDS)
        return [await is_cancelled(engine.get("waits")), await engine.get("later").result(), await traced.result()]


def main() -> None:
    run_program(finish)
