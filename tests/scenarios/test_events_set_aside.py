"""Events whose value does not fit the type that is waited for never end a workflow (G6): they are refused where their
sender is beside the code, and set aside otherwise."""

import asyncio
import datetime as dt
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.client.views import report as details
from holdfast.core.history import EventReceived, EventSetAside
from holdfast.core.lifecycle import InstanceState

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass(frozen=True)
class Approval:
    ok: bool


@dataclass(frozen=True)
class Stamped:
    by: str
    at: dt.datetime = field(default_factory=hf.now)


channel = hf.Event[Approval]("approval")


@hf.workflow
async def waits_for_one() -> bool:
    return (await hf.event("approval", Approval)).ok


@hf.workflow
async def waits_on_a_channel() -> bool:
    return (await channel).ok


@hf.workflow
async def collects() -> list[int]:
    found: list[int] = []
    async for number in hf.events("number", int):
        found.append(number)
        if len(found) == 2:
            break
    return found


@hf.workflow
async def two_waits() -> list[int]:
    return list(await asyncio.gather(hf.event("number", int), hf.event("number", int)))


@hf.workflow
async def two_types() -> list[int | str]:
    return [await hf.event("value", int), await hf.event("value", str)]


@hf.workflow
async def waits_a_while() -> str:
    try:
        async with asyncio.timeout(0.3):
            await hf.event("number", int)
    except TimeoutError:
        return "nothing fitted in time"
    return "?"


@hf.workflow
async def begins_again(round_number: int = 1) -> list[int]:
    if round_number == 1:
        await hf.event("go")
        hf.continue_as_new(2)
    return [await hf.event("number", int)]


@hf.workflow
async def begins_again_and_again(round_number: int = 1) -> int:
    number = await hf.event("number", int)
    if round_number < 3:
        hf.continue_as_new(round_number + 1)
    return number


@hf.workflow
async def stamps() -> str:
    stamped = await hf.event("stamped", Stamped)
    return f"{stamped.by} {stamped.at == hf.now()}"


ALL = (
    waits_for_one,
    waits_on_a_channel,
    collects,
    two_waits,
    two_types,
    waits_a_while,
    begins_again,
    begins_again_and_again,
    stamps,
)


async def send_from_elsewhere(
    store: Path,
    instance: str,
    *events: tuple[str, Any],
    id: str | None = None,  # noqa: A002
) -> None:
    """As `holdfast event` does it: by a client that knows nothing of the code."""
    async with await hf.connect(store) as client:
        for name, value in events:
            assert await client.get(instance).raise_event(name, value, id=id) is True


def set_aside_in(store: Path) -> int:
    """How many events the first instance of a store has set aside."""
    return sum(isinstance(event, EventSetAside) for event in history_of(store, 1))


@CACHES
@pytest.mark.parametrize("workflow", [waits_for_one, waits_on_a_channel])
def test_G6_an_event_that_does_not_fit_is_set_aside_and_the_workflow_goes_on_waiting(
    tmp_path: Path, cache_size: int, workflow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(workflow, id="it")
            await send_from_elsewhere(store, "it", ("approval", {"okay": True}), ("approval", 7))
            await until(lambda: sum(isinstance(event, EventSetAside) for event in history_of(store, 1)) == 2)
            described = await handle.describe()
            assert (described.state, described.waiting_for) == (InstanceState.RUNNING, ["event approval"])
            assert described.collation_key == "5"
            first, second = described.set_aside
            assert (first.name, first.value, second.value) == ("approval", {"okay": True}, 7)
            assert "missing required field `ok`" in first.reason
            assert audit(store) == []
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:  # by replay
            await send_from_elsewhere(store, "it", ("approval", {"ok": True}))
            assert await engine.get("it").result() is True
            assert len((await engine.get("it").describe()).set_aside) == 2
        assert audit(store) == []

    with caplog.at_level(logging.WARNING, "holdfast.workflow"):
        together(scenario())
    said = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert len(said) == 2, "each once, not again in replay"
    assert "'approval' was set aside" in said[0]


@pytest.mark.parametrize("workflow", [waits_for_one, waits_on_a_channel])
def test_G6_a_sender_beside_the_code_that_waits_is_refused(tmp_path: Path, workflow: Any) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handle = await engine.start(workflow, id="it")
            with pytest.raises(hf.PayloadError, match=r"event 'approval' cannot be read: .*`ok`"):
                await handle.raise_event("approval", {"okay": True})
            with pytest.raises(hf.PayloadError, match="the value of event 'approval' cannot be stored"):
                await handle.raise_event(channel, 7)  # type: ignore[misc]
            assert not any(isinstance(event, EventReceived) for event in history_of(store, 1))
            assert await handle.raise_event("approval", {"ok": False}) is True
            assert await handle.result() is False
        assert audit(store) == []

    together(scenario())


def test_G6_a_sender_is_judged_by_the_wait_that_its_event_reaches(tmp_path: Path) -> None:
    """Both are sent before the first is applied: the second fits the second wait, and not the first."""

    async def scenario() -> list[int | str]:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(two_types, id="it")
            await asyncio.gather(handle.raise_event("value", 1), handle.raise_event("value", "two"))
            return await handle.result()

    assert together(scenario()) == [1, "two"]


def test_G6_a_type_that_needs_the_workflow_is_read_in_the_workflow(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(stamps, id="it")
            await handle.raise_event("stamped", {"by": "ann"})
            return await handle.result()

    assert together(scenario()) == "ann True"


@CACHES
@pytest.mark.parametrize("workflow", [collects, two_waits])
def test_G6_a_wait_keeps_its_place_when_an_event_is_set_aside(tmp_path: Path, cache_size: int, workflow: Any) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(workflow, id="it")
            values = ("a", 1, None, [2], 2, "b")
            await send_from_elsewhere(store, "it", *(("number", value) for value in values[:5]))
            assert await handle.result() == [1, 2]
            assert [aside.value for aside in (await handle.describe()).set_aside] == ["a", None, [2]]
        assert audit(store) == []

    together(scenario())


def test_G6_a_time_out_ends_a_wait_for_which_nothing_fitted(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> str:
        async with engine_of(store, *ALL, cache_size=0) as engine:
            handle = await engine.start(waits_a_while, id="it")
            await send_from_elsewhere(store, "it", ("number", "a"))
            return await handle.result()

    assert together(scenario()) == "nothing fitted in time"
    assert audit(store) == []


def test_G4_an_unread_event_that_does_not_fit_is_set_aside_by_the_next_execution(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handle = await engine.start(begins_again, id="it")
            await send_from_elsewhere(store, "it", ("number", "a"), ("number", 5), ("go", None))
            assert await handle.result() == [5]
            described = await handle.describe()
            assert (described.execution, [aside.value for aside in described.set_aside]) == (2, ["a"])
        assert audit(store) == []

    together(scenario())


@CACHES
def test_G4_events_that_earlier_executions_set_aside_stay_visible(
    tmp_path: Path, cache_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "shop.db"
    large = "x" * 50_000

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(begins_again_and_again, id="it")
            await send_from_elsewhere(store, "it", ("number", "a"), ("number", 1), ("number", large), ("number", 2))
            await until(lambda: set_aside_in(store) == 2)
            await send_from_elsewhere(store, "it", ("number", "c"))
            await until(lambda: set_aside_in(store) == 3)
            described = await handle.describe()
            assert [(aside.execution, aside.name) for aside in described.set_aside] == [
                (1, "number"),
                (2, "number"),
                (3, "number"),
            ]
            assert (described.set_aside[0].value, described.set_aside[2].value) == ("a", "c")
            assert "int" in described.set_aside[0].reason
            whole = await handle.describe(whole=True)
            assert [aside.value for aside in whole.set_aside] == ["a", large, "c"]
            monkeypatch.setattr(details, "EARLIER_EXECUTIONS", 1)
            assert [aside.execution for aside in (await handle.describe()).set_aside] == [2, 3]
            assert [aside.execution for aside in (await handle.describe(whole=True)).set_aside] == [1, 2, 3]
            await send_from_elsewhere(store, "it", ("number", 3))
            assert await handle.result() == 3
            assert len((await handle.describe(whole=True)).set_aside) == 3
        assert audit(store) == []

    together(scenario())


@CACHES
def test_G6_a_corrected_event_with_the_same_id_is_delivered(tmp_path: Path, cache_size: int) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(collects, id="it")
            await send_from_elsewhere(store, "it", ("number", "a"), id="first")
            await until(lambda: set_aside_in(store) == 1)
            await send_from_elsewhere(store, "it", ("number", "b"), id="first")
            await until(lambda: set_aside_in(store) == 2)
            await send_from_elsewhere(store, "it", ("number", 1), id="first")
            await until(lambda: rows(store, "SELECT mail FROM instances") == [(0,)])
            await send_from_elsewhere(store, "it", ("number", 1), ("number", 7), id="first")  # delivered before
            await send_from_elsewhere(store, "it", ("number", 2), id="second")
            assert await handle.result() == [1, 2]
            assert [aside.id for aside in (await handle.describe()).set_aside] == ["first", "first"]
        assert audit(store) == []

    together(scenario())


@CACHES
def test_G6_a_corrected_event_is_a_duplicate_until_the_first_one_is_set_aside(tmp_path: Path, cache_size: int) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            await client.start("collects", id="it")
        await send_from_elsewhere(store, "it", ("number", "a"), ("number", 1), id="first")  # no worker has read "a"
        assert rows(store, "SELECT mail FROM instances") == [(1,)]
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            handle = engine.get("it")
            await until(lambda: set_aside_in(store) == 1)
            assert [(aside.id, aside.value) for aside in (await handle.describe()).set_aside] == [("first", "a")]
            await send_from_elsewhere(store, "it", ("number", 2), id="first")
            await send_from_elsewhere(store, "it", ("number", 3), id="second")
            assert await handle.result() == [2, 3]
        assert audit(store) == []

    together(scenario())


@CACHES
def test_G6_a_start_whose_event_does_not_fit_is_refused_and_stores_nothing(tmp_path: Path, cache_size: int) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            several: tuple[dict[str, Any], ...] = ({}, {"id": "it"}, {"id": "it", "policy": "reuse"})
            for options in several:
                with pytest.raises(hf.PayloadError, match="event 'approval' cannot be read"):
                    await engine.start(waits_for_one, event=("approval", 7), **options)
            assert rows(store, "SELECT id FROM instances") == []
            handle = await engine.start(waits_for_one, id="it", event=("approval", {"ok": True}))
            assert await handle.result() is True
        assert audit(store) == []

    together(scenario())


def test_G6_a_start_that_finds_its_instance_is_refused_if_its_event_does_not_fit(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handle = await engine.start(collects, id="it")
            with pytest.raises(hf.PayloadError, match="event 'number' cannot be read"):
                await engine.start(collects, id="it", event=("number", "a"))
            assert not any(isinstance(event, EventReceived) for event in history_of(store, 1))
            for number in (1, 2):
                assert not (await engine.start(collects, id="it", event=("number", number))).is_new
            assert await handle.result() == [1, 2]
            with pytest.raises(hf.InstanceClosed):
                await engine.start(collects, id="it", event=("number", 3))
            again = await engine.start(collects, id="it", policy="reuse", event=("number", 3))
            assert again.is_new
            with pytest.raises(hf.InstanceConflict):
                await engine.start(two_waits, id="it", event=("number", 4))
        assert audit(store) == []

    together(scenario())


def test_G12_what_was_set_aside_stays_so_when_the_type_changes(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    @hf.workflow(name="flow")
    async def narrow() -> Any:
        return await hf.event("value", int)

    @hf.workflow(name="flow")
    async def wide() -> Any:
        return await hf.event("value", int | str)

    async def scenario() -> Any:
        async with engine_of(store, narrow) as engine:
            await engine.start(narrow, id="it")
            await send_from_elsewhere(store, "it", ("value", "a"))
            await until(lambda: isinstance(history_of(store, 1)[-1], EventSetAside))
        async with engine_of(store, wide) as engine:
            handle = engine.get("it")
            await handle.raise_event("value", "b")
            return await handle.result()

    assert together(scenario()) == "b"
    assert audit(store) == []


def test_G12_a_taken_event_that_no_longer_fits_blocks_the_instance_and_does_not_end_it(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    @hf.workflow(name="flow")
    async def wide() -> str:
        return f"{await hf.event('value', int | str)} {await hf.event('more', str)}"

    @hf.workflow(name="flow")
    async def narrow() -> str:
        return f"{await hf.event('value', int)} {await hf.event('more', str)}"

    async def scenario() -> str:
        async with engine_of(store, wide) as engine:
            await (await engine.start(wide, id="it")).raise_event("value", "a")
        async with engine_of(store, narrow) as engine:
            handle = engine.get("it")
            await handle.raise_event("more", "b")
            with pytest.raises(hf.WorkflowBlocked):
                await handle.result()
            assert (await handle.describe()).state == InstanceState.BLOCKED
        async with engine_of(store, wide) as engine:
            return str(await engine.get("it").result())

    assert together(scenario()) == "a b"
    assert audit(store) == []


def test_G12_a_history_of_a_release_that_set_nothing_aside_is_replayed_as_it_was(tmp_path: Path) -> None:
    """There the code received the error. The history is the same as that of code that takes any value."""

    @hf.workflow(name="flow")
    async def takes_anything() -> str:
        await hf.event("number")
        return "caught"

    @hf.workflow(name="flow")
    async def caught_it() -> str:
        try:
            return str(await hf.event("number", int))
        except hf.PayloadError:
            return "caught"

    async def scenario() -> str:
        async with engine_of(tmp_path / "shop.db", takes_anything) as engine:
            handle = await engine.start(takes_anything, id="it")
            await handle.raise_event("number", "a")
            await handle.result()
            return await handle.export_history()

    hf.testing.Replayer(workflows=[caught_it]).replay(together(scenario()))
