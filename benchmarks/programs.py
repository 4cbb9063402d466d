"""The workflows and activities of the benchmarks. Bodies are trivial: the benchmarks measure the engine."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Final

import holdfast as hf

LOG_VARIABLE: Final = "HOLDFAST_BENCH_LOG"
"""Names a file to which bodies of `logged_step` write a line when they begin and when they end."""
BODY_SECONDS: Final = 0.05
AN_HOUR: Final = 3600.0
EVENT: Final = "go"
WORD: Final = "token"


@hf.activity
async def step(number: int) -> int:
    """The trivial body."""
    return number + 1


@hf.activity
async def logged_step(instance: str, number: int) -> int:
    """A body that takes a while and logs to a file outside of the store."""
    note("S", instance, number)
    await asyncio.sleep(BODY_SECONDS)
    note("E", instance, number)
    return number + 1


@hf.activity
async def timed_step(number: int) -> int:
    """A body that records the time of its run."""
    step_times.append(time.perf_counter())
    return number + 1


step_times: list[float] = []


@hf.workflow
async def sequence(steps: int) -> int:
    """Steps one after the other."""
    number = 0
    for _ in range(steps):
        number = await step(number)
    return number


@hf.workflow
async def timed_sequence(steps: int) -> int:
    """Steps one after the other, each with the time at which it ran."""
    number = 0
    for _ in range(steps):
        number = await timed_step(number)
    return number


@hf.workflow
async def fan_out(steps: int) -> int:
    """Steps at the same time."""
    return len(await asyncio.gather(*(step(number) for number in range(steps))))


@hf.workflow
async def sleeper(seconds: float) -> int:
    """Nothing but a timer."""
    await asyncio.sleep(seconds)
    return 1


@hf.workflow
async def logged_sequence(instance: str, steps: int) -> int:
    """The workflow of the crash."""
    number = 0
    for _ in range(steps):
        number = await logged_step(instance, number)
    return number


@hf.workflow
async def sequence_then_sleep(steps: int) -> int:
    """Has a history, and stays open."""
    number = 0
    for _ in range(steps):
        number = await step(number)
    await asyncio.sleep(AN_HOUR)
    return number


@hf.workflow
async def waiter() -> int:
    """Waits for one event."""
    return await hf.event(EVENT, int)


@hf.workflow
async def collector(count: int) -> int:
    """Takes events one after the other, and minds their order."""
    number = 0
    async for number in hf.events(EVENT, int):
        if number != len(taken):
            raise AssertionError(number)
        taken.append(number)
        if number == count - 1:
            break
    return number


taken: list[int] = []


@hf.activity
async def tokens(count: int) -> AsyncIterator[str]:
    """As a language model would: a word at a time."""
    for _ in range(count):
        yield WORD


@hf.workflow
async def reader(count: int) -> int:
    """Takes every value of a stream."""
    number = 0
    async for token in tokens(count):
        number += token == WORD
    return number


WORKFLOWS: Final = (
    sequence,
    timed_sequence,
    fan_out,
    sleeper,
    logged_sequence,
    sequence_then_sleep,
    waiter,
    collector,
    reader,
)
ACTIVITIES: Final = (step, logged_step, timed_step, tokens)


def chain_text(steps: int) -> str:
    """The flow that does what `sequence` does, as YAML."""
    lines = ["flow: chain", "activities:", "  n0: {trigger: true}"]
    for at in range(1, steps + 1):
        given = f'"n{at - 1}.output"' if at > 1 else "0"
        lines.append(f"  n{at}: {{run: step, input: {{number: {given}}}, after: n{at - 1}}}")
    return "\n".join([*lines, f'output: "n{steps}.output"'])


def note(kind: str, instance: str, number: int) -> None:
    """Write one line without a buffer, so that a killed process has logged all that it did."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{time.time():.6f} {kind} {instance} {number}\n".encode())
        finally:
            os.close(descriptor)
