"""Real workers that launch real programs: ``holdfast activity run`` (C4, W6)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from tests.forking.processes import Process
from tests.scenarios.support import together
from tests.workers.app import FOLDER
from tests.workers.launching import PROGRAM, echo, echoes
from tests.workers.processes import ROOT, folder_of, notes, open_gate
from tests.workers.support import attempts, sound, told

import holdfast as hf
from holdfast.cli.exits import EXIT_LOST

pytestmark = pytest.mark.slow


@contextmanager
def launching(store: str) -> Generator[Process]:
    env = {FOLDER: str(folder_of(store))}
    with Process("tests.workers.launching:main", store, env=env, has_session=True) as process:
        yield process


def tasks(store: str) -> list[tuple[str, str]]:
    """The exec ids and claims of the launches so far."""
    return [(words[2], words[3]) for words in notes(store) if words[0] == "launches"]


async def launches(store: str, count: int) -> list[tuple[str, str]]:
    while len(found := tasks(store)) < count:  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.01)
    return found


def run_under(store: str, exec_id: str, claim: str) -> int:
    """The exit code of the program, launched under these ids."""
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": exec_id, "HOLDFAST_CLAIM": claim, "HOLDFAST_STORE": store}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **ids}
    return subprocess.run(PROGRAM, env=environment, cwd=ROOT, check=False, timeout=60).returncode


def test_W6_a_worker_killed_between_its_claim_and_the_launch_is_followed_by_another_launch(store: str) -> None:
    """The program under the old exec id is refused, and exits as one that lost its claim."""

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            handle = await client.start(echoes, "a", id="a")
            with launching(store) as victim:
                [old] = await launches(store, 1)
                victim.kill()
            with launching(store):
                _, new = await launches(store, 2)
                assert new[0] != old[0]
                [attempt] = await attempts(client, "a")
                assert (str(attempt.state), attempt.ledger) == ("QUEUED", 799_000_000_000_000)
                assert await asyncio.to_thread(run_under, store, *old) == EXIT_LOST
                open_gate(store, "launch")
                assert await handle.result(timeout=60) == {"name": "a"}
                assert [(str(each.state), each.losses) for each in await attempts(client, "a")] == [("COMPLETED", 0)]
        sound(store)

    together(scenario(), seconds=120)


def test_C14_a_launched_program_outlives_the_worker_that_launched_it(store: str) -> None:
    """The program runs in a session of its own, and the next worker handles its reports."""

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            handle = await client.start(echoes, "b", id="b")
            slow = [*PROGRAM[:-1], sys.executable, "-c", "import sys, time; time.sleep(2); print(sys.stdin.read())"]
            launcher = hf.CommandLauncher(slow, store=store)
            async with await hf.connect(store) as other:
                first = hf.Worker(other, workflows=[echoes], activities=[echo], launchers={"gpu": launcher})
                async with first:

                    async def runs() -> bool:
                        return [str(each.state) for each in await attempts(client, "b")] == ["RUNNING"]

                    await told(runs)
            assert [each.owner for each in await attempts(client, "b")] == [None]
            open_gate(store, "launch")
            with launching(store):
                assert await handle.result(timeout=60) == {"name": "b"}
        assert not tasks(store), "it was not launched again"
        sound(store)

    together(scenario(), seconds=120)
