"""W5: a fork inside a body makes no second worker. Nothing of the parent's is used in the child."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
import holdfast as hf

@hf.activity(retry=hf.Retry(attempts=1))
async def in_the_loop() -> str:
    child = os.fork()
    if child == 0:
        return "child"
    _, status = os.waitpid(child, 0)
    return f"parent, child ended with {os.waitstatus_to_exitcode(status)}"

@hf.activity(retry=hf.Retry(attempts=1))
def in_a_thread() -> str:
    child = os.fork()
    if child == 0:
        sys.exit(3)
    _, status = os.waitpid(child, 0)
    return f"parent, child ended with {os.waitstatus_to_exitcode(status)}"

@hf.workflow
async def both() -> list[str]:
    return [await in_the_loop(), await in_a_thread()]

async def main() -> None:
    async with hf.Engine(sys.argv[1], workflows=[both], activities=[in_the_loop, in_a_thread]) as engine:
        print(await engine.run(both, id="it"))
        child = os.fork()
        if child == 0:
            try:
                await engine.get("it").describe()
            except hf.StoreError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)

asyncio.run(main())
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_W5_a_body_that_forks_has_one_result_and_the_child_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "shop.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "['parent, child ended with 0', 'parent, child ended with 3']" in done.stdout
    assert "was opened before this process was forked" in done.stdout


TEARING = """
import asyncio, sys
import holdfast as hf
from holdfast.runtime.platform import Platform

@hf.workflow
async def swallows() -> None:
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass

@hf.workflow
async def spins_at_the_end() -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        while True:
            pass

async def main() -> None:
    world = Platform(turn_limit_ms=200)
    async with hf.Engine(sys.argv[1], workflows=[swallows, spins_at_the_end], _platform=world) as engine:
        await engine.start(sys.argv[2], id="it")

asyncio.run(main())
print("ended")
"""


@pytest.mark.parametrize("workflow", ["swallows", "spins_at_the_end"])
def test_code_that_will_not_end_keeps_neither_the_engine_nor_the_process(tmp_path: Path, workflow: str) -> None:
    command = [sys.executable, "-c", TEARING, str(tmp_path / "shop.db"), workflow]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
