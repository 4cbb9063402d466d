"""Workflows for tests with real processes. Bodies write down that they ran, and wait for gates: files of tests."""

import asyncio
import os
import signal
from pathlib import Path

import holdfast as hf

FOLDER = "HOLDFAST_TEST_FOLDER"
POLL_SECONDS = 0.005


def note(*words: object) -> None:
    """One line, in one write, so that lines of several processes never mix."""
    descriptor = os.open(Path(os.environ[FOLDER]) / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{' '.join(str(word) for word in words)}\n".encode())
    os.close(descriptor)


async def gate(name: str) -> None:
    """Wait until a test has opened it."""
    while not (Path(os.environ[FOLDER]) / name).exists():  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(POLL_SECONDS)


@hf.activity
async def at_home(name: str) -> int:
    note("at_home", name, os.getpid())
    return os.getpid()


@hf.activity(queue="parcels")
def at_the_post(name: str) -> int:
    note("at_the_post", name, os.getpid())
    return os.getpid()


@hf.activity
async def gated(name: str) -> str:
    attempt = hf.activity_info().attempt
    note("began", name, attempt, os.getpid())
    await gate(f"{name} {attempt}")
    note("ended", name, attempt, os.getpid())
    return f"{name} {attempt}"


@hf.activity
async def beating(name: str) -> str:
    """Tells how it goes until its gate is open, and what it was told of the attempt before it."""
    info = hf.activity_info()
    note("began", name, info.attempt, os.getpid())
    while not (Path(os.environ[FOLDER]) / f"{name} {info.attempt}").exists():
        hf.heartbeat(f"{name} {info.attempt}")
        await asyncio.sleep(POLL_SECONDS)
    return f"{name} {info.attempt} after {info.details}"


@hf.activity(process=True)
def in_a_process(name: str) -> str:
    attempt = hf.activity_info().attempt
    note("began", name, attempt, os.getpid())
    while not (Path(os.environ[FOLDER]) / f"{name} {attempt}").exists():
        os.sched_yield()
    return f"{name} {attempt}"


@hf.workflow
async def sends(count: int) -> list[list[int]]:
    """Pids of those who ran its activities: at home and at the post."""
    return [[await at_home(str(number)), await at_the_post(str(number))] for number in range(count)]


@hf.workflow
async def waits(name: str) -> str:
    return await gated(name)


@hf.workflow
async def beats(name: str) -> str:
    return await beating(name)


@hf.workflow
async def crunches(name: str) -> str:
    return await in_a_process(name)


@hf.workflow
async def rests(name: str) -> int:
    """Two turns around a timer: idle until it is due."""
    await asyncio.sleep(0.05)
    return await at_home(name)


class Here:
    """How a body stops its process. A program may say it better, to stop with nothing on its way to disk."""

    async def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


here = Here()


@hf.activity
async def stopping(name: str) -> str:
    """Waits for its gate; the first attempt then stops its whole process, and answers when that goes on."""
    attempt = hf.activity_info().attempt
    note("began", name, attempt, os.getpid())
    await gate(f"{name} {attempt}")
    if attempt == 1:
        await here.stop()
    return f"{name} {attempt}"


async def get_ready(name: str) -> int:
    """The process that prepares an attempt. The first entry waits for ever, so that it can be killed meanwhile."""
    note("prepares", name, os.getpid())
    await gate(f"{name} is ready")
    return os.getpid()


@hf.activity(prepare=get_ready, rerun_after_loss=False)
async def readied(name: str) -> int:
    note("began", name, hf.activity_info().attempt, os.getpid())
    return int(hf.activity_info().prepared)


@hf.workflow
async def prepares(name: str) -> int:
    return await readied(name)


@hf.activity(queue="lent")
async def lent(name: str) -> str:
    """Runs where the instance is not."""
    attempt = hf.activity_info().attempt
    note("began", name, attempt, os.getpid())
    await gate(f"{name} {attempt}")
    return f"{name} {attempt}"


@hf.workflow
async def lends(name: str) -> str:
    return await lent(name)


@hf.workflow
async def haunted() -> list[str]:
    return list(await asyncio.gather(beating("a"), stopping("b")))


@hf.activity(max_losses=1_000, retry=hf.Retry(attempts=1_000, initial=0.01, jitter=False))
async def blown(name: str) -> str:
    note("blown", name)
    await asyncio.sleep(0.05)
    return name


@hf.activity(queue="parcels", max_losses=1_000)
def blown_in_a_thread(name: str) -> str:
    note("blown", name)
    return name


@hf.workflow
async def storms(name: str) -> list[str]:
    """Six activities, one after the other, side by side and around a timer."""
    first = [await blown(f"{name} 0"), await blown_in_a_thread(f"{name} 1")]
    await asyncio.sleep(0.1)
    middle = await asyncio.gather(blown(f"{name} 2"), blown_in_a_thread(f"{name} 3"), blown(f"{name} 4"))
    return [*first, *middle, await blown(f"{name} 5")]
