"""A workflow whose attributes a client changes, and a program that runs both (`tests.crash.program`)."""

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

EXPECTED = [("approved", True), ("mine", "code"), ("phase", 1)]
STORED = {"approved": True, "mine": "code", "phase": 1, "ticket": "OPS-1"}


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.workflow(name="approved")
async def approved() -> list[tuple[str, object]]:
    hf.attributes["phase"] = "asking"
    hf.attributes["gone"] = "soon"
    await hf.wait_until(lambda: hf.attributes.get("approved") is True and "gone" not in hf.attributes)
    hf.attributes["mine"] = "code"
    hf.attributes["phase"] = await step(0)
    return sorted(hf.attributes.items())


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    """Start the workflow, change its attributes, also after its end."""
    platform = Platform(fault_hook=hook)
    async with hf.Engine(store, workflows=[approved], activities=[step], _platform=platform) as engine:
        handle: hf.Handle[object] = await engine.start(workflow, id="it")
        if (await handle.describe()).closed_at is None:
            await handle.set_attributes({"approved": True})
            await handle.set_attributes({"gone": None})
        try:
            return await handle.result()
        finally:
            await handle.set_attributes({"ticket": "OPS-1"})


def main() -> None:
    run_program(finish)
