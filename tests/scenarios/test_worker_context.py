"""The context of a worker (A12): made before it takes work, the same in all its bodies, closed after them."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import rows, together

import holdfast as hf
from holdfast.errors import ContextFailed, InvalidOption, UsageError
from holdfast.testing import Environment

LOG: list[str] = []


@dataclass
class Clients:
    """What a program opens once."""

    seen: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def make_clients() -> AsyncGenerator[Clients]:
    LOG.append("enter")
    task = asyncio.current_task()
    clients = Clients()
    try:
        yield clients
    finally:
        assert asyncio.current_task() is task, "a cancel scope is left by the task that entered it"
        LOG.append(f"exit {sorted(clients.seen)}")


@hf.activity
async def in_loop(name: str) -> str:
    hf.context(Clients).seen.append(name)
    await asyncio.sleep(0)
    return name


@hf.activity
def in_thread(name: str) -> int:
    clients = hf.context(Clients)
    clients.seen.append(f"thread {name}")
    return id(hf.context()) - id(clients)


@hf.activity(process=True, retry=hf.Retry(attempts=1))
def in_process() -> str:
    return str(hf.context(Clients))


def made(name: str) -> Clients:
    del name
    return hf.context(Clients)


@hf.activity(prepare=made)
async def prepared(name: str) -> bool:
    return hf.activity_info().prepared is hf.context(Clients) and bool(name)


@hf.activity(retry=hf.Retry(attempts=1))
async def of_another_type() -> None:
    hf.context(int)


@hf.workflow
async def uses() -> list[Any]:
    return [await in_loop("a"), await in_thread("b"), await prepared("c")]


@hf.workflow
async def fails(what: str) -> str:
    try:
        await (in_process() if what == "process" else of_another_type())
    except UsageError as error:
        return str(error)
    return ""


ACTIVITIES: list[hf.Activity[..., Any]] = [in_loop, in_thread, in_process, prepared, of_another_type]
CODE: dict[str, Any] = {"workflows": [uses, fails], "activities": ACTIVITIES}


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


def test_A12_all_bodies_of_a_worker_have_its_context_and_it_is_closed_after_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with hf.Engine(path, **CODE, context=make_clients) as engine:
            assert LOG == ["enter"]
            assert list(await asyncio.gather(engine.run(uses), engine.run(uses))) == [["a", 0, True]] * 2
            assert LOG == ["enter"]
        assert LOG == ["enter", "exit ['a', 'a', 'thread b', 'thread b']"]
        async with hf.connect(path) as client:
            async with hf.Worker(client, **CODE, context=make_clients):
                assert await client.run(uses) == ["a", 0, True]
            assert LOG[2:] == ["enter", "exit ['a', 'thread b']"]

    together(scenario())


def test_A12_a_body_that_ends_while_its_worker_stops_has_the_context_to_its_end(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @hf.activity
    async def slow() -> None:
        clients = hf.context(Clients)
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            assert "exit" not in str(LOG)
            clients.seen.append("ended")

    @hf.workflow
    async def waits() -> None:
        await slow()

    async def scenario() -> None:
        async with hf.Engine(tmp_path / "s.db", workflows=[waits], activities=[slow], context=make_clients) as engine:
            await engine.start(waits)
            await begun.wait()
        assert LOG == ["enter", "exit ['ended']"]

    together(scenario())


def test_A12_without_a_context_and_outside_of_activities_the_error_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(UsageError, match=r"hf.context works in the body of an activity that a worker runs only"):
            hf.context()
        with pytest.raises(UsageError, match=r"hf.context works in the body of an activity"):
            await in_loop("a")
        async with hf.Engine(tmp_path / "a.db", **CODE, context=make_clients) as engine:
            refused = await engine.run(fails, "process")
            assert refused.startswith("hf.context: in_process has process=True, and the context of a worker stays in")
            assert await engine.run(fails, "type") == "hf.context(int): the context is a Clients"
        async with hf.Engine(tmp_path / "b.db", **CODE) as engine:
            assert "this worker has no context; give it one" in await engine.run(fails, "type")

    together(scenario())


def fail() -> None:
    raise ConnectionError("mail is down")


@asynccontextmanager
async def refuses() -> AsyncGenerator[None]:
    fail()
    yield


@contextmanager
def not_async() -> Any:
    yield


async def not_a_manager() -> None: ...


async def only_a_generator() -> AsyncGenerator[None]:
    yield


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (refuses, "could not be made by refuses: ConnectionError: mail is down"),
        (
            not_async,
            "by not_async: InvalidOption: it returned a _GeneratorContextManager, not an async context manager",
        ),
        (not_a_manager, "by not_a_manager: InvalidOption: it returned a coroutine"),
        (only_a_generator, "by only_a_generator: InvalidOption: it returned a async_generator"),
    ],
)
def test_A12_a_worker_whose_context_fails_does_not_start(tmp_path: Path, factory: Any, message: str) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with hf.connect(path) as client:
            handle = await client.start(uses, id="it")
            with pytest.raises(ContextFailed, match=message):
                await hf.Worker(client, **CODE, context=factory).run()
            assert rows(path, "SELECT * FROM workers") == []
            async with hf.Worker(client, **CODE, context=make_clients):
                assert await handle.result(timeout=10) == ["a", 0, True]
        with pytest.raises(ContextFailed, match=message):
            async with hf.Engine(path, **CODE, context=factory):
                pytest.fail("it started")

    together(scenario())


def test_A12_an_error_while_the_context_is_closed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def breaks_late() -> AsyncGenerator[Clients]:
        yield Clients()
        raise ConnectionError("gone")

    async def scenario() -> None:
        async with hf.Engine(tmp_path / "shop.db", **CODE, context=breaks_late) as engine:
            assert await engine.run(uses) == ["a", 0, True]

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "the context of the worker failed while it was closed"
    ]


@pytest.mark.parametrize(("given", "message"), [(7, "context takes a function"), (make_clients, "make_clients, not")])
def test_A12_the_context_itself_is_refused(given: Any, message: str) -> None:
    make: Any = hf.Engine
    with pytest.raises(InvalidOption, match=message):
        make(":memory:", **CODE, context=given if given == 7 else given())


def test_A12_each_worker_of_an_environment_has_a_context_also_after_a_crash() -> None:
    async def scenario() -> None:
        async with Environment(**CODE, context=make_clients) as env:
            env.crash(after=in_loop)
            assert await env.run(uses) == ["a", 0, True]
        assert [line.partition(" ")[0] for line in LOG] == ["enter", "exit", "enter", "exit"]

    asyncio.run(scenario())
