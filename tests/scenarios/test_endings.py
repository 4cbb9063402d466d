"""Ends that meet: two answers, two timers, an answer and a close in one moment. And the locks that hold the file."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import attempts_of, free_slots, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def echo(number: int) -> int:
    return number


@hf.activity
async def block_the_loop(number: int) -> int:
    time.sleep(0.15)  # noqa: ASYNC251 - so that both timers are due when the loop comes back
    return number


@hf.workflow
async def first_of_two() -> int:
    tasks = {asyncio.create_task(echo(1)), asyncio.create_task(echo(2))}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return 1


@hf.workflow
async def two_timers() -> int:
    hurry = asyncio.create_task(block_the_loop(1))
    async with asyncio.timeout(0.1):
        await asyncio.sleep(0.05)  # due first, and ends the wait for the other
    return await hurry


@CACHES
def test_L14_A8_an_answer_that_comes_with_the_end_is_recorded_and_nothing_stays_open(
    tmp_path: Path, cache_size: int
) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, echo, first_of_two, cache_size=cache_size) as engine:
            await asyncio.gather(*(engine.run(first_of_two, id=f"i{number}") for number in range(20)))
        assert audit(path) == []
        open_states = "SELECT count(*) FROM attempts WHERE state NOT IN ('COMPLETED', 'CANCELLED', 'TIMED_OUT')"
        assert rows(path, open_states) == [(0,)]

    together(scenario())


@CACHES
def test_G10_a_timer_whose_wait_was_ended_in_the_same_turn_does_not_fire(tmp_path: Path, cache_size: int) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, block_the_loop, two_timers, cache_size=cache_size) as engine:
            assert await engine.run(two_timers, id="it") == 1
            kinds = [entry.kind for entry in await engine.get("it").history()]
            assert kinds.count("timer_fired") == kinds.count("timer_cancelled") == 1
        assert audit(path) == []

    together(scenario())


def test_another_tool_cannot_change_the_files_mode_while_an_engine_has_it_open(tmp_path: Path) -> None:
    """Closing a descriptor of the file anywhere in the process would have dropped SQLite's locks on it."""
    path = tmp_path / "shop.db"
    tool = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.2).execute('PRAGMA journal_mode = DELETE')"

    async def scenario() -> None:
        async with engine_of(path, echo, first_of_two) as engine:
            await engine.run(first_of_two, id="a")
            done = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", tool, str(path)], capture_output=True, text=True, check=False
            )
            assert "database is locked" in done.stderr
            await engine.run(first_of_two, id="b")
        assert rows(path, "SELECT count(*) FROM instances") == [(2,)]

    together(scenario())


def test_an_activity_that_is_given_up_in_the_turn_that_calls_it_takes_no_slot(tmp_path: Path) -> None:
    @hf.activity
    async def never() -> None:
        raise AssertionError("nobody waits for it, so it must not run")

    @hf.workflow
    async def flow() -> int:
        for _ in range(5):
            call = asyncio.create_task(never())
            await asyncio.sleep(0)
            call.cancel()
        await asyncio.sleep(0.01)
        return 5

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", never, flow, max_activities=2) as engine:
            assert await engine.run(flow, id="it") == 5
            worker = worker_of(engine)
            await until(lambda: free_slots(worker) == 2)
            assert not attempts_of(worker).running
        assert rows(tmp_path / "shop.db", "SELECT DISTINCT state FROM attempts") == [("CANCELLED",)]
        check_tables(tmp_path / "shop.db")

    together(scenario())
