"""The clock of a store that is set back, or forward: what stands still, what goes on, and how it is mended (W9)."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.scenarios.support import engine_of, together
from tests.scenarios.test_timers import ShiftedClock
from tests.workers.support import sound

import holdfast as hf

HOUR_MS = 3_600_000


@hf.activity
async def quick(number: int) -> int:
    return number + 1


@hf.workflow
async def steps(count: int) -> int:
    number = 0
    for _ in range(count):
        number = await quick(number)
    return number


@hf.workflow
async def sleeps(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


def test_W9_while_a_clock_catches_up_work_goes_on_and_timers_wait(tmp_path: Path) -> None:
    clock, path = ShiftedClock(), tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, quick, steps, sleeps, providers=clock) as engine:
            assert await engine.run(steps, 3, id="before") == 3
            clock.shift_ms = -HOUR_MS
            waiting = await engine.start(sleeps, 0.01, id="waits")
            assert await engine.run(steps, 50, id="meanwhile") == 50, "what waits for no time goes on"
            with pytest.raises(TimeoutError):
                await waiting.result(timeout=0.05)
            clock.shift_ms = 0
            assert await waiting.result(timeout=10) == "awake", "the clock has caught up"

    together(scenario())
    sound(str(path))


def test_W9_a_mark_that_is_far_ahead_can_be_set_by_hand(tmp_path: Path) -> None:
    """As the guide says: for a clock that was wrong by years, and was believed."""
    clock, path = ShiftedClock(), tmp_path / "shop.db"

    async def wrong() -> None:
        clock.shift_ms = 24 * 365 * HOUR_MS
        async with engine_of(path, quick, steps, sleeps, providers=clock) as engine:
            await engine.run(steps, 1, id="in a year")
            clock.shift_ms = 0
            await engine.start(sleeps, 0.01, id="waits")

    async def mended() -> None:
        async with engine_of(path, quick, steps, sleeps, providers=clock) as engine:
            assert await engine.run(sleeps, 0.01, id="new") == "awake"
            assert await engine.run(steps, 1) == 1

    together(wrong())
    connection: Any = apsw.Connection(str(path))
    connection.execute("UPDATE clock SET now_ms = unixepoch() * 1000")
    connection.close()
    together(mended())
    sound(str(path))
