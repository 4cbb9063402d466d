"""Holdfast on SQLite or PostgreSQL: an engine with a client and a worker in one process."""

import asyncio
from typing import Any, Final

import holdfast as hf
from benchmarks.peers.workloads import CRASHING, FAN_OUT, SEQUENCE, SLEEPER, WAITER, Peer, body, slow_body

EVENT: Final = "go"


@hf.activity
async def step(instance: str, number: int) -> int:
    """The trivial body."""
    return body(instance, number)


@hf.activity
async def slow_step(instance: str, number: int) -> int:
    """The body of the crash."""
    return await slow_body(instance, number)


@hf.workflow
async def sequence(instance: str, size: int) -> int:
    """Steps one after the other."""
    number = 0
    for _ in range(size):
        number = await step(instance, number)
    return number


@hf.workflow
async def crashing(instance: str, size: int) -> int:
    """Slow steps one after the other."""
    number = 0
    for _ in range(size):
        number = await slow_step(instance, number)
    return number


@hf.workflow
async def fan_out(instance: str, size: int) -> int:
    """Steps at the same time."""
    return len(await asyncio.gather(*(step(instance, number) for number in range(size))))


@hf.workflow
async def sleeper(_instance: str, size: int) -> int:
    """A timer."""
    await asyncio.sleep(size)
    return size


@hf.workflow
async def waiter(_instance: str, _size: int) -> int:
    """Waits for one event."""
    return await hf.event(EVENT, int)


WORKFLOWS: Final[dict[str, Any]] = {
    SEQUENCE: sequence,
    CRASHING: crashing,
    FAN_OUT: fan_out,
    SLEEPER: sleeper,
    WAITER: waiter,
}


class Engine(Peer):
    """Holdfast."""

    async def open(self) -> None:
        self._engine = hf.Engine(self.store, workflows=WORKFLOWS.values(), activities=[step, slow_step])
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def start(self, kind: str, instance: str, size: int) -> None:
        await self._engine.start(WORKFLOWS[kind], instance, size, id=instance)

    async def result(self, instance: str) -> Any:
        return await self._engine.get(instance).result()

    async def run(self, kind: str, instance: str, size: int) -> Any:
        return await self._engine.run(WORKFLOWS[kind], instance, size, id=instance)

    async def raise_event(self, instance: str, value: int) -> None:
        await self._engine.get(instance).raise_event(EVENT, value)
