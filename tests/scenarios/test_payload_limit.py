"""`payload_limit`: what is too large is refused where it is made, and a result that is too large is not retried."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, history_of, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import EventAwaited, Started
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES

SMALL = 20_000
LONG = "x" * 30_000
runs: list[str] = []


@hf.activity
async def grow(length: int) -> str:
    runs.append("grow")
    return "x" * length


@hf.activity
def grow_in_thread(length: int) -> str:
    runs.append("grow_in_thread")
    return "x" * length


@hf.activity
async def grow_as_stream(length: int) -> AsyncIterator[str]:
    runs.append("grow_as_stream")
    yield "x" * length


@hf.activity
async def takes(text: str) -> int:
    return len(text)


@hf.workflow
async def grows(kind: str, length: int) -> int:
    if kind == "stream":
        return sum([len(part) async for part in grow_as_stream(length)])
    return len(await (grow if kind == "async" else grow_in_thread)(length))


@hf.workflow
async def child(text: str) -> int:
    return len(text)


@hf.workflow
async def makes(what: str) -> str:
    match what:
        case "an argument":
            await takes(LONG)
        case "the input of a child":
            await child(LONG)
        case "the input of a started child":
            await hf.start(child, LONG)
        case "a side effect":
            hf.side_effect(lambda: LONG)
        case "an event":
            hf.raise_event("other", "news", LONG)
        case "the input of the next execution":
            hf.continue_as_new(LONG)
        case _:
            return LONG
    return what


@hf.workflow
async def answers() -> str:
    @hf.on_query
    def long() -> str:
        return LONG

    @hf.on_update
    def longer(text: str) -> str:
        return text + LONG

    del long, longer
    return await hf.event("go", str)


ALL = (grow, grow_in_thread, grow_as_stream, takes, grows, child, makes, answers)


@pytest.mark.parametrize("kind", ["async", "thread", "stream"])
def test_G13_a_result_above_the_limit_fails_its_activity_at_once(kind: str) -> None:
    runs.clear()

    async def scenario() -> BaseException | None:
        async with engine_of(":memory:", *ALL, payload_limit=SMALL) as engine:
            with pytest.raises(hf.WorkflowFailed) as failed:
                await engine.run(grows, kind, SMALL)
            assert await engine.run(grows, kind, SMALL - 2) == SMALL - 2
            return failed.value.cause

    cause = together(scenario())
    assert isinstance(cause, hf.errors.PayloadTooLarge)
    assert "has 20,002 bytes, and payload_limit is 20,000" in str(cause)
    assert len(runs) == 2


@pytest.mark.parametrize(
    "what",
    [
        "an argument",
        "the input of a child",
        "the input of a started child",
        "a side effect",
        "an event",
        "the input of the next execution",
        "the result",
    ],
)
def test_what_workflow_code_makes_is_bounded(what: str) -> None:
    async def scenario() -> BaseException | None:
        async with engine_of(":memory:", *ALL, payload_limit=SMALL) as engine:
            with pytest.raises(hf.WorkflowFailed) as failed:
                await engine.run(makes, what)
            return failed.value.cause

    cause = together(scenario())
    assert isinstance(cause, hf.errors.PayloadTooLarge)
    assert "an execution keeps the limit that it began with, so a new instance" in str(cause)


def test_what_a_client_sends_is_bounded(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine, hf.connect(store, payload_limit=SMALL) as client:
            handle = await engine.start(answers, id="it")
            limited = client.get("it")
            with pytest.raises(hf.errors.PayloadTooLarge, match=r"child\(\): the payload of the arguments"):
                await client.start(child, LONG)
            with pytest.raises(hf.errors.PayloadTooLarge, match="the value of event 'go'"):
                await limited.raise_event("go", LONG)
            with pytest.raises(hf.errors.PayloadTooLarge, match="the arguments of update 'longer'"):
                await limited.update("longer", LONG)
            with pytest.raises(hf.errors.PayloadTooLarge, match="the arguments of query 'long'"):
                await limited.query("long", LONG)
            assert await handle.update("longer", LONG) == LONG + LONG
            await limited.raise_event("go", "on")
            assert await handle.result() == "on"

    together(scenario())


def test_the_answers_of_a_workflow_are_bounded() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", *ALL, payload_limit=SMALL) as engine:
            handle = await engine.start(answers, id="it")
            with pytest.raises(hf.QueryFailed, match="the answer of query 'long'"):
                await handle.query("long")
            with pytest.raises(hf.UpdateFailed, match="the result of update 'longer'"):
                await handle.update("longer", "")

    together(scenario())


@pytest.mark.parametrize(("before", "after"), [(SMALL, PAYLOAD_LIMIT_BYTES), (PAYLOAD_LIMIT_BYTES, SMALL)])
def test_G12_an_execution_keeps_the_limit_that_it_began_with(tmp_path: Path, before: int, after: int) -> None:
    """Otherwise its code would be refused in one run and not in the other."""
    store = tmp_path / "shop.db"

    @hf.workflow
    async def tries() -> str:
        try:
            first = await takes(LONG)
        except hf.errors.PayloadTooLarge:
            first = await takes("short")
        return f"{first} {await hf.event('go', str)}"

    async def scenario() -> Any:
        async with engine_of(store, takes, tries, payload_limit=before) as engine:
            await engine.start(tries, id="it")
            await until(lambda: any(isinstance(event, EventAwaited) for event in history_of(store, 1)))
        async with engine_of(store, takes, tries, payload_limit=after) as engine:
            await engine.get("it").raise_event("go", "on")
            return await engine.get("it").result()

    assert together(scenario()) == ("5 on" if before == SMALL else "30000 on")
    (started,) = [event for event in history_of(store, 1) if isinstance(event, Started)]
    assert started.payload_limit == before
    assert audit(store) == []


def test_a_large_payload_is_stored_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    length = 3 * 1024 * 1024
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=0) as engine:
            assert await engine.run(grows, "async", length) == length
            assert await engine.run(grows, "async", length) == length

    with caplog.at_level(logging.WARNING, "holdfast"):
        together(scenario())
    assert [record.getMessage().partition(" has ")[0] for record in caplog.records] == ["the result of grow()"]
    assert audit(store) == []


@hf.workflow
async def large_result(length: int) -> str:
    @hf.on_query
    def size() -> int:
        return length

    del size
    return "x" * length


def test_a_replayed_result_is_not_warned_of_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, large_result) as engine:
            await engine.run(large_result, 3 * 1024 * 1024, id="it")
        async with engine_of(store, large_result) as engine:
            assert await engine.get("it").query("size") == 3 * 1024 * 1024

    with caplog.at_level(logging.WARNING, "holdfast"):
        together(scenario())
    assert [record.getMessage().partition(" has ")[0] for record in caplog.records] == ["the result of large_result()"]


def test_a_worker_has_the_limit_of_its_client_or_its_own() -> None:
    async def scenario(**options: Any) -> int:
        runs.clear()
        async with (
            hf.connect(":memory:", payload_limit=SMALL) as client,
            hf.Worker(client, workflows=[grows], activities=[grow, grow_in_thread], **options),
        ):
            try:
                return await client.run(grows, "async", SMALL)
            except hf.WorkflowFailed:
                return 0

    assert together(scenario()) == 0
    assert together(scenario(payload_limit=2 * SMALL)) == SMALL


@pytest.mark.parametrize("limit", [0, -1, 100, 10**12, "32MB", True, None, 1.5])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(hf.errors.InvalidOption, match="payload_limit must be an integer from 16,384 to 268,435,456"):
        hf.Engine(":memory:", payload_limit=limit)
