"""Clients, engines, handles and workers belong to the event loop that opened them, and are open once."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, together

import holdfast as hf


@hf.workflow
async def echo(number: int) -> int:
    return number


@hf.workflow
async def waits() -> str:
    return await hf.event("word", str)


Call = Callable[[], Coroutine[Any, Any, Any]]

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "start": (echo, 1),
    "run": (echo, 1),
    "raise_event": ("word", "x"),
    "cancel_activity": ("echo",),
    "release": ("node",),
    "query": ("state",),
    "update": ("state",),
    "start_update": ("state",),
    "set_attributes": ({"customer": "acme"},),
    "delete": ("waits",),
    "prune": ("state = COMPLETED",),
    "__aexit__": (None, None, None),
}


INTERNAL = {
    "abandon",
    "start_worker",
    "deliver_event",
    "end_from_outside",
    "stop_worker",
    "request_cancel",
    "result_of",
    "wait_for_end",
}
"""For tests and for other modules of the package: users reach them through methods that are checked here."""


def public_coroutines(owner: object) -> dict[str, Call]:
    """Every coroutine method that users call, by name. A new method joins by itself."""

    async def taken(values: AsyncIterator[Any]) -> None:
        async for _ in values:
            pass

    def call(name: str, method: Any) -> Call:
        arguments = () if (type(owner), name) == (hf.Worker, "run") else ARGUMENTS.get(name, ())
        if inspect.isasyncgenfunction(method):
            return lambda: taken(method(*arguments))
        return lambda: method(*arguments)

    names = [name for name in dir(type(owner)) if not name.startswith("_") or name in ("__aenter__", "__aexit__")]
    methods = {name: getattr(owner, name) for name in names if inspect.isroutine(getattr(type(owner), name))}
    return {
        name: call(name, method)
        for name, method in methods.items()
        if name not in INTERNAL
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
    }


def from_another_thread(call: Call) -> BaseException | None:
    """What a call raises on an event loop of its own, in a thread of its own."""
    raised: list[BaseException | None] = []

    async def bounded() -> None:
        async with asyncio.timeout(5):
            await call()

    def view() -> None:
        try:
            asyncio.run(bounded())
            raised.append(None)
        except Exception as error:  # noqa: BLE001 - the caller compares it
            raised.append(error)

    thread = threading.Thread(target=view)
    thread.start()
    thread.join()
    return raised[0]


@pytest.mark.parametrize("kind", ["engine", "client", "handle", "worker"])
def test_every_public_coroutine_refuses_the_loop_of_another_thread(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with (
            engine_of(tmp_path / "shop.db", echo, waits) as engine,
            hf.connect(tmp_path / "shop.db", workflows=[echo]) as client,
        ):
            handle = await engine.start(waits, id="waits")
            async with hf.Worker(client, workflows=[echo]) as worker:
                owner = {"engine": engine, "client": client, "handle": handle, "worker": worker}[kind]
                calls = public_coroutines(owner)
                assert len(calls) >= 3
                for name, call in calls.items():
                    raised = await asyncio.to_thread(from_another_thread, call)
                    if name == "open" or (name == "__aenter__" and kind == "engine"):
                        assert isinstance(raised, hf.errors.UsageError), f"{name} raised {raised!r}"
                        assert "already" in str(raised)
                    else:
                        assert isinstance(raised, hf.errors.WrongEventLoop), f"{name} raised {raised!r}"
                        assert "asyncio.run_coroutine_threadsafe" in str(raised), name
            assert [summary.id for summary in await engine.list()] == ["waits"], "nothing was committed"
            assert await engine.run(echo, 1, id="later") == 1

    together(scenario())


def test_a_call_by_run_coroutine_threadsafe_is_the_way_from_other_threads() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", echo) as engine:
            loop = asyncio.get_running_loop()

            def view() -> int:
                return asyncio.run_coroutine_threadsafe(engine.run(echo, 7), loop).result()

            assert await asyncio.to_thread(view) == 7

    together(scenario())


def test_a_handle_and_a_client_are_refused_once_their_loop_is_gone(tmp_path: Path) -> None:
    async def begin() -> tuple[hf.Client, hf.Handle[int]]:
        client = await hf.connect(tmp_path / "shop.db")
        return client, await client.start(echo, 1, id="a")

    client, handle = asyncio.run(begin())
    for call in (handle.describe, handle.result, handle.cancel, client.list, client.close):
        with pytest.raises(hf.errors.WrongEventLoop, match=r"is closed; open and use it within one asyncio\.run"):
            asyncio.run(call())

    async def release() -> None:
        """What the process that lost the loop would keep until it ends."""
        await client._session.close()

    asyncio.run(release())


def test_workflow_code_cannot_call_a_client() -> None:
    engines: list[hf.Engine] = []

    @hf.workflow
    async def calls_out() -> None:
        await engines[0].start(echo, 1, id="from a workflow")

    async def scenario() -> None:
        async with engine_of(":memory:", echo, calls_out) as engine:
            engines.append(engine)
            with pytest.raises(hf.WorkflowFailed, match=r"call it in an activity, or use hf\.start") as failed:
                await engine.run(calls_out, id="a")
            assert type(failed.value.cause).__name__ == "NotInWorkflow"
            assert [summary.id for summary in await engine.list()] == ["a"]

    together(scenario())


def test_drain_of_a_worker_may_come_from_any_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hf.connect(tmp_path / "shop.db") as client:
            worker = hf.Worker(client, workflows=[echo])
            running = asyncio.create_task(worker.run())
            await client.start(echo, 1, id="a")
            assert await client.get("a").result(timeout=10) == 1
            await asyncio.to_thread(worker.drain)
            await running

    together(scenario())


# ---------------------------------------------------------------- opening and closing


def test_an_engine_that_is_opened_without_a_block_has_its_worker() -> None:
    async def scenario() -> None:
        engine = engine_of(":memory:", echo)
        await engine.open()
        assert await engine.run(echo, 3) == 3
        await engine.close()
        await engine.close()

    together(scenario())


@pytest.mark.parametrize("kind", ["engine", "client"])
def test_a_closed_client_refuses_every_call_and_is_not_opened_again(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        opened = await engine_of(tmp_path / "a.db", echo).__aenter__() if kind == "engine" else None
        client = opened or await hf.connect(tmp_path / "a.db")
        handle = await client.start(echo, 1, id="a")
        await client.close()
        again = r"make another one: `async with hf\."
        for owner in (client, handle):
            for name, call in public_coroutines(owner).items():
                if name not in ("close", "__aexit__"):
                    with pytest.raises(hf.errors.ClientClosed, match=again):
                        await call()

    together(scenario())


@pytest.mark.parametrize("name", ["start", "run", "list", "workers", "queues"])
def test_an_engine_that_is_not_open_says_how_to_open_it(name: str) -> None:
    async def scenario() -> None:
        engine = engine_of(":memory:", echo)
        with pytest.raises(hf.errors.UsageError, match=r"this engine is not open; write `async with hf\.Engine"):
            await public_coroutines(engine)[name]()

    together(scenario())


def test_a_plain_with_says_what_to_write() -> None:
    engine: Any = engine_of(":memory:", echo)
    with pytest.raises(hf.errors.UsageError, match=r"write `async with hf\.Engine\(\.\.\.\) as engine:`"), engine:
        pass


def test_connect_is_awaited_or_entered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hf.connect(tmp_path / "a.db") as client:
            await client.start("echo", 1, id="a")
        with pytest.raises(hf.errors.ClientClosed):
            await client.list()
        async with await hf.connect(tmp_path / "a.db") as client:
            assert len(await client.list()) == 1
        task = asyncio.create_task(hf.connect(tmp_path / "a.db"))
        await (await task).close()
        connecting: Any = hf.connect(tmp_path / "a.db")
        with pytest.raises(hf.errors.UsageError, match=r"a worker needs a client: await hf\.connect"):
            hf.Worker(connecting, workflows=[echo])
        connecting.close()
        with pytest.raises(hf.errors.InvalidOption):
            async with hf.connect(""):
                pass

    together(scenario())
