"""A workflow with large inputs, killed by SIGKILL at a commit: ``python -m tests.crash.large STORE [POINT K]``."""

import asyncio
import sys
from pathlib import Path

from tests.crash.apps import KillAt

import holdfast as hf
from holdfast.runtime.surroundings import Surroundings

TEXT = "x" * 50_000


@hf.activity(retry=hf.Retry(attempts=3, initial=0.001), max_losses=100)
async def measure(text: str) -> int:
    if hf.activity_info().attempt == 1:
        raise ConnectionError
    return len(text)


@hf.workflow
async def measures(text: str) -> int:
    return await measure(text) + await measure(text) + await measure(text + "y")


async def finish(store: str, hook: KillAt | None) -> int:
    world = Surroundings(fault_hook=hook)
    async with hf.Engine(store, workflows=[measures], activities=[measure], surroundings=world) as engine:
        return await engine.run(measures, TEXT, id="it")


if __name__ == "__main__":
    path, *fault = sys.argv[1:]
    result = asyncio.run(finish(path, KillAt(fault[0], int(fault[1])) if fault else None))
    Path(path).with_suffix(".result").write_text(str(result), encoding="utf-8")
