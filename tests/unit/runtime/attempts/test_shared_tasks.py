"""Bodies share a task until one of them has to wait, and none of them can tell."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
from tests.scenarios.support import until

from holdfast.runtime.attempts.shared_tasks import SharedTasks

Body = Callable[[], Awaitable[Any]]
colour: ContextVar[str] = ContextVar("colour", default="none")


@dataclass(eq=False)
class Item:
    """A body, and what became of it."""

    body: Body
    kind: str = "body"
    task: "asyncio.Task[None] | None" = None
    ended: object = None
    began_on: "asyncio.Task[Any] | None" = None
    ended_on: "asyncio.Task[Any] | None" = None


class Bench:
    """Carriers whose items note how they ended."""

    def __init__(self) -> None:
        self.carriers = SharedTasks(self._run, self._rest)
        self.rests = 0
        self.all_ended = asyncio.Event()
        self.items: list[Item] = []

    async def _run(self, item: Item) -> None:
        item.began_on = asyncio.current_task()
        try:
            item.ended = await item.body()
        except BaseException as error:  # noqa: BLE001 - noted, as a runner of attempts does
            item.ended = error
        item.ended_on = asyncio.current_task()

    def _rest(self) -> None:
        self.rests += 1
        if all(item.ended is not None for item in self.items):
            self.all_ended.set()

    def add(self, body: Body, kind: str = "body") -> Item:
        item = Item(body, kind)
        self.items.append(item)
        self.carriers.add(item)
        return item

    async def end(self) -> None:
        async with asyncio.timeout(10):
            await self.all_ended.wait()


def on_bench(case: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await case(Bench())

    asyncio.run(run())


async def at_once() -> str:
    return "at once"


def test_bodies_that_never_wait_share_a_task_and_one_call_of_rest() -> None:
    async def case(bench: Bench) -> None:
        items = [bench.add(at_once) for _ in range(5)]
        await bench.end()
        assert [item.ended for item in items] == ["at once"] * 5
        assert len({item.began_on for item in items}) == 1
        assert bench.rests == 1
        assert bench.carriers.current_task is None
        again = bench.add(at_once)
        bench.all_ended.clear()
        await bench.end()
        assert again.ended == "at once"

    on_bench(case)


def test_a_body_that_waits_keeps_its_task_and_the_others_run_on_another() -> None:
    async def case(bench: Bench) -> None:
        opened = asyncio.Event()

        async def waits() -> str:
            await opened.wait()
            return "later"

        first, slow, last = bench.add(at_once), bench.add(waits, "slow"), bench.add(at_once)
        await until(lambda: last.ended is not None)
        assert not slow.ended
        assert slow.task is slow.began_on is first.began_on
        assert last.began_on is not slow.task
        opened.set()
        await bench.end()
        assert slow.ended == "later"
        assert slow.ended_on is slow.began_on

    on_bench(case)


def test_a_kind_that_has_waited_gets_tasks_of_its_own() -> None:
    async def case(bench: Bench) -> None:
        bench.add(lambda: asyncio.sleep(0, "waited"), "slow")
        await bench.end()
        bench.all_ended.clear()
        bodies: list[Body] = [lambda: asyncio.sleep(0, "waited"), at_once, lambda: asyncio.sleep(0, "waited")]
        items = [bench.add(body, "slow") for body in bodies]
        assert len({item.task for item in items} - {None}) == 3
        await bench.end()
        assert [item.ended for item in items] == ["waited", "at once", "waited"]
        assert all(item.began_on is item.ended_on is item.task for item in items)

    on_bench(case)


def test_a_time_out_is_for_the_body_that_set_it() -> None:
    async def case(bench: Bench) -> None:
        async def hurried() -> None:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()

        async def grouped() -> str:
            async with asyncio.TaskGroup() as group:
                told = group.create_task(asyncio.sleep(0.01, "from the group"))
            return told.result()

        late, other, last = bench.add(hurried), bench.add(grouped), bench.add(at_once)
        await bench.end()
        assert isinstance(late.ended, TimeoutError)
        assert (other.ended, last.ended) == ("from the group", "at once")

    on_bench(case)


def test_an_error_after_a_time_out_has_no_context_that_is_not_its_own() -> None:
    async def case(bench: Bench) -> None:
        async def recovers() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            raise ValueError("its own")

        item = bench.add(recovers)
        await bench.end()
        assert isinstance(item.ended, ValueError)
        assert item.ended.__context__ is None

    on_bench(case)


@pytest.mark.parametrize("waits", [False, True])
def test_a_body_that_cancels_its_task_cancels_no_other(waits: bool) -> None:
    async def case(bench: Bench) -> None:
        async def cancels_itself() -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if waits:
                await asyncio.sleep(0)
            return "it never waited"

        odd = bench.add(cancels_itself)
        others = [bench.add(lambda: asyncio.sleep(0, "waited")), bench.add(at_once)]
        await bench.end()
        assert isinstance(odd.ended, asyncio.CancelledError) is waits
        assert [item.ended for item in others] == ["waited", "at once"]

    on_bench(case)


def test_a_body_sees_the_context_variables_of_no_other() -> None:
    async def case(bench: Bench) -> None:
        seen: list[str] = []

        def paints(name: str, *, waits: bool) -> Body:
            async def body() -> str:
                seen.append(colour.get())
                colour.set(name)
                if waits:
                    await asyncio.sleep(0)
                seen.append(colour.get())
                return name

            return body

        for name, waits in (("red", False), ("blue", True), ("green", False)):
            bench.add(paints(name, waits=waits), name)
            await bench.end()
            bench.all_ended.clear()
        assert seen == ["none", "red", "none", "blue", "none", "green"]
        assert colour.get() == "none"

    on_bench(case)


def test_an_error_outside_of_a_body_does_not_keep_the_others_from_beginning() -> None:
    async def case(bench: Bench) -> None:
        async def broken(item: Item) -> None:
            if item.kind == "broken":
                raise RuntimeError("the engine itself")
            item.ended = await item.body()

        carriers = SharedTasks(broken, bench.all_ended.clear)
        first, last = Item(at_once, "broken"), Item(at_once)
        carriers.add(first)
        carriers.add(last)
        dying = carriers.current_task
        assert dying is not None
        with pytest.raises(RuntimeError, match="the engine itself"):
            await dying
        await until(lambda: last.ended is not None)

    on_bench(case)
