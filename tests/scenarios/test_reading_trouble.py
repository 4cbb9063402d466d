"""When a read of the store fails, or takes its time: no message is passed over, and nobody is left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, together, until
from tests.support.inside import live_instances, worker_of

import holdfast as hf
from holdfast.storage.contract import Store


@hf.activity(queue="other")
async def answer() -> int:
    return 1


@hf.workflow
async def both() -> int:
    first, second = await asyncio.gather(answer(), hf.event("go", int))
    return first + second


@hf.workflow
async def listens() -> int:
    total = 0
    async for number in hf.events("number", int):
        total += number
        if number < 0:
            break
    return total


@hf.workflow
async def nothing(number: int) -> int:
    return number


class FirstRead:
    """The first call of one read of a store ends as it is told to; all others are as they were."""

    def __init__(self, store: Store, name: str, first: Callable[[], Awaitable[None]]) -> None:
        self._real: Callable[..., Awaitable[Any]] = getattr(store, name)
        self._first = first
        self.begun = asyncio.Event()
        setattr(store, name, self._read)

    async def _read(self, *args: Any, **options: Any) -> Any:
        is_first = not self.begun.is_set()
        self.begun.set()
        if is_first:
            await self._first()
        return await self._real(*args, **options)


async def fails() -> None:
    raise hf.StoreError("cannot be reached")


async def takes_its_time() -> None:
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("first", [fails, takes_its_time])
@pytest.mark.parametrize("raises_here", [True, False])
def test_G5_no_message_is_passed_over_while_another_is_read(
    tmp_path: Path, first: Callable[[], Awaitable[None]], raises_here: bool
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with (
            engine_of(path, both, listens, queues=["default"]) as engine,
            await hf.connect(path) as client,
        ):
            other = await engine.start(listens, id="other")
            handle = await engine.start(both, id="it")
            await until(lambda: len(live_instances(worker_of(engine))) == 2)
            read = FirstRead(engine._session.store, "read_attempts", first)
            async with engine_of(path, answer, queues=["other"]):
                await read.begun.wait()  # the worker has the row of the answer in its hands
                await client.get("it").raise_event("go", 1)  # a later row
                if raises_here:
                    await other.raise_event("number", 1)  # what is raised here has the inboxes read, too
                assert await handle.result() == 2
            await other.raise_event("number", -1)
            assert await other.result() == (0 if raises_here else -1)
        check_tables(path)

    together(scenario())


def test_G2_one_instance_that_cannot_be_read_leaves_the_others_of_its_claim_to_somebody(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with await hf.connect(path) as client:
            for number in range(4):
                await client.start("nothing", number, id=f"it-{number}")
        engine = engine_of(path, nothing, lease=2)
        FirstRead(engine._session.store, "load", fails)
        async with engine:
            assert await asyncio.gather(*(engine.get(f"it-{number}").result() for number in range(4))) == [0, 1, 2, 3]
            assert not live_instances(worker_of(engine)).waking
        check_tables(path)

    together(scenario())


def test_W10_a_worker_leaves_although_its_client_goes_on_starting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await hf.connect(tmp_path / "shop.db") as client:
            worker = hf.Worker(client, workflows=[nothing])
            working = asyncio.create_task(worker.run())
            await client.run(nothing, 1)
            started = 0

            async def starts() -> None:
                nonlocal started
                while True:
                    await client.start(nothing, started)
                    started += 1

            several = [asyncio.create_task(starts()) for _ in range(8)]
            await until(lambda: started > 100)
            worker.drain(3)
            await working
            for each in several:
                each.cancel()
            await asyncio.gather(*several, return_exceptions=True)

    together(scenario())
