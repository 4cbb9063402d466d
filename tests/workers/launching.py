"""A worker with a launcher, for tests that kill it: ``STORE``. Its launcher waits for a gate before each launch."""

import asyncio
import sys

from tests.workers.app import gate, note

import holdfast as hf

PROGRAM = [sys.executable, "-c", "from holdfast.cli import main; main()", "activity", "run", "--", "cat"]
"""The answer is the input."""


@hf.activity(external=True, queue="gpu", heartbeat=60)
async def echo(name: str) -> dict[str, str]: ...  # type: ignore[empty-body]


@hf.workflow
async def echoes(name: str) -> dict[str, str]:
    return await echo(name)


class GatedLauncher(hf.CommandLauncher):
    """Notes the task, and launches when a test has opened its gate."""

    async def launch(self, task: hf.LaunchTask) -> None:
        note("launches", task.workflow_exec_id, task.activity_exec_id, task.claim)
        await gate("launch")
        await super().launch(task)


async def work(store: str) -> None:
    launcher = GatedLauncher(PROGRAM, store=store)
    async with await hf.connect(store) as client:
        worker = hf.Worker(client, workflows=[echoes], activities=[echo], launchers={"gpu": launcher})
        await worker.run()


def main() -> None:
    asyncio.run(work(sys.argv[1]))
