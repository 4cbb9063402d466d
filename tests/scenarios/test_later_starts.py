"""Starts that name a later time (G15): `client.start(..., start_at=...)`."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import InvalidOption

began: list[float] = []


@hf.activity(name="step")
async def step(number: int) -> int:
    return number + 1


@hf.workflow(name="later")
async def later() -> str:
    began.append(1)
    at = hf.now()
    await asyncio.sleep(60)
    return f"{at:%H:%M:%S} {await step(1)} {hf.now() - at}"


@hf.workflow(name="talks")
async def talks() -> list[Any]:
    asked: list[int] = []

    @hf.on_update
    def add(number: int) -> int:
        asked.append(number)
        return number

    event = await hf.event("word", str)
    await hf.wait_until(lambda: bool(asked))
    return [event, asked]


@pytest.fixture(autouse=True)
def _none() -> None:
    began.clear()


def test_G15_the_first_turn_is_not_taken_before_the_time_and_the_code_begins_at_it() -> None:
    async def scenario() -> None:
        async with skipping(later, step) as env:
            start_at = env.now + dt.timedelta(hours=1)
            handle = await env.start(later, id="it", start_at=start_at)
            described = await handle.describe()
            assert (described.state, described.turn) == ("REQUESTED", 0)
            assert described.start_at is not None
            assert abs(described.start_at - start_at) < dt.timedelta(milliseconds=2)
            assert described.waiting_for == [f"its start at {described.start_at:%Y-%m-%d %H:%M:%S} UTC"]
            assert [each.start_at for each in await env.list()] == [described.start_at]
            assert not began
            shown, number, took = (await handle.result()).split(" ")
            assert shown == f"{described.start_at:%H:%M:%S}"
            assert (number, took[:7]) == ("2", "0:01:00")
            assert env.now >= start_at + dt.timedelta(minutes=1)
            check_tables(path_of(env))
            assert audit(path_of(env)) == []

    asyncio.run(scenario())


def test_G15_events_and_updates_that_come_earlier_wait_and_do_not_start_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, talks) as engine:
            handle = await engine.start(talks, id="it", start_at=dt.timedelta(seconds=0.8), event=("other", 1))
            await handle.raise_event("word", "early")
            update = asyncio.ensure_future(handle.update("add", 5))
            await until(lambda: rows(path, "SELECT 1 FROM updates"))
            assert rows(path, "SELECT state, turn, owner FROM instances") == [("REQUESTED", 0, None)]
            [(claimable, start_at)] = rows(path, "SELECT claimable_at_ms, start_at_ms FROM instances")
            assert claimable == start_at
            assert audit(path) == []
            assert await handle.result(timeout=10) == ["early", [5]]
            assert await update == 5
            [(created, first)] = rows(path, "SELECT created_at_ms, start_at_ms FROM instances")
            assert first - created >= 700
            check_tables(path)

    together(scenario())


def test_G15_another_worker_takes_the_first_turn_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, talks), hf.connect(path) as client:
            handle = await client.start("talks", id="it", start_at=0.3, event=("word", "hello"))
            assert (await handle.describe()).state == "REQUESTED"
            assert await handle.update("add", 1, timeout=10) == 1
            assert await handle.result(timeout=10) == ["hello", [1]]

    together(scenario())


def test_G15_a_cancel_before_the_time_ends_it_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, later, step) as engine:
            handle = await engine.start(later, id="it", start_at=dt.timedelta(days=1))
            await handle.cancel("not needed")
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result(timeout=10)
            assert not began
            check_tables(path)
            assert audit(path) == []

    together(scenario())


def test_G3_a_repeated_start_with_another_time_finds_the_instance(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, later, step) as engine:
            first = await engine.start(later, id="it", start_at=3_600)
            again = await engine.start(later, id="it", start_at=7_200)
            now = await engine.start(later, id="it")
            assert (first.is_new, again.is_new, now.is_new) == (True, False, False)
            assert first.number == again.number == now.number
            assert len(rows(path, "SELECT 1 FROM instances")) == 1
            assert not began, "a start that finds its instance does not start it earlier"

    together(scenario())


def test_A9_the_deadline_counts_from_the_time_of_the_first_turn() -> None:
    async def scenario() -> None:
        async with skipping(later, step) as env:
            handle = await env.start(later, id="it", start_at=3_600, deadline=120)
            described = await handle.describe()
            assert described.deadline is not None
            assert described.start_at is not None
            assert described.deadline - described.start_at == dt.timedelta(seconds=120)
            assert " 2 " in await handle.result()
            short = await env.start(later, id="short", start_at=3_600, deadline=10)
            with pytest.raises(hf.WorkflowFailed, match="10 s"):
                await short.result()
            assert audit(path_of(env)) == []

    asyncio.run(scenario())


def test_G15_a_time_that_has_passed_means_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", talks) as engine:
            past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
            handle = await engine.start(talks, id="it", start_at=past, event=("word", "now"))
            await handle.update("add", 1, timeout=10)
            assert await handle.result(timeout=10) == ["now", [1]]

    together(scenario())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (dt.datetime(2030, 1, 1), "start_at must have a time zone"),  # noqa: DTZ001 - that is what is refused
        (dt.datetime(9999, 1, 1, tzinfo=dt.UTC), "days from now"),
        (-1, "start_at must be 0 to"),
        (True, "a number of seconds or a timedelta"),
        ("tomorrow", "a number of seconds or a timedelta"),
    ],
)
def test_G15_a_time_that_cannot_be_meant_is_refused(given: Any, sentence: str) -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", later, step) as engine:
            with pytest.raises(InvalidOption, match=sentence):
                await engine.start(later, id="it", start_at=given)
            assert await engine.list() == []

    together(scenario())


def test_G15_a_restart_before_the_time_does_not_start_it_earlier(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, talks) as engine:
            handle = await engine.start(talks, id="it", start_at=0.6, event=("word", "kept"))
            [(before,)] = rows(path, "SELECT start_at_ms FROM instances")
        async with engine_of(path, talks) as engine:
            handle = engine.get("it")
            assert rows(path, "SELECT state FROM instances") == [("REQUESTED",)]
            await handle.update("add", 1, timeout=10)
            assert await handle.result(timeout=10) == ["kept", [1]]
            assert rows(path, "SELECT start_at_ms FROM instances") == [(before,)]

    together(scenario())
