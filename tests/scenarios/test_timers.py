"""Durable timers: late, never early; across restarts; in order with everything else (G8, G10)."""

import asyncio
import datetime as dt
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, history_of, rows, together, until

import holdfast as hf
from holdfast.runtime.platform import SystemClockAndIds


@pytest.fixture(params=[100, 0], ids=["warm", "cache-0"])
def cache_size(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


class ShiftedClock(SystemClockAndIds):
    """The real world with a clock that can be put forward and back."""

    def __init__(self) -> None:
        super().__init__()
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


@hf.workflow
async def three_sleeps() -> list[dt.datetime]:
    times = [hf.now()]
    for _ in range(3):
        await asyncio.sleep(0.02)
        times.append(hf.now())
    return times


@hf.workflow
async def long_sleep(seconds: float) -> dt.datetime:
    await asyncio.sleep(seconds)
    return hf.now()


def due_times(path: Path) -> list[int]:
    return [due for (due,) in rows(path, "SELECT due_at_ms FROM timers ORDER BY timer")]


def test_G10_a_timer_counts_from_the_time_the_timer_before_it_fired(cache_size: int) -> None:
    times = finish(three_sleeps, cache_size=cache_size)
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    assert all(gap >= 0.02 for gap in gaps)


def test_invariant_10_no_timer_fires_before_its_due_time(cache_size: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", long_sleep, cache_size=cache_size) as engine:
            waits = [0.0007 * number for number in range(1, 60)]
            handles = [await engine.start(long_sleep, wait, id=f"i{wait}") for wait in waits]
            for handle, wait in zip(handles, waits, strict=True):
                await handle.result()
                history = {entry.kind: entry.fields for entry in await handle.history()}
                due_at_ms = history["timer_started"]["due_at_ms"]
                assert due_at_ms >= history["started"]["time_ms"] + wait * 1000 - 0.001, "rounded up"
                closed_at = (await handle.describe()).closed_at
                assert closed_at is not None
                assert closed_at.timestamp() * 1000 >= due_at_ms - 0.5

    together(scenario())


def test_invariant_10_a_message_does_not_bring_a_timer_forward(cache_size: int) -> None:
    """The turn of a message takes the timers that are due with it, and no others."""

    @hf.activity
    async def moment() -> int:
        return SystemClockAndIds().now_ms()

    @hf.workflow
    async def flow() -> int:
        before = await moment()
        await asyncio.gather(asyncio.sleep(0.3), moment())
        return await moment() - before

    assert finish(flow, moment, cache_size=cache_size) >= 300


def test_G8_after_a_restart_before_the_fire_time_the_timer_keeps_its_due_time(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, long_sleep, cache_size=cache_size) as engine:
            await engine.start(long_sleep, 0.3, id="a")
            due = due_times(path)
        async with engine_of(path, long_sleep, cache_size=cache_size) as engine:
            assert due_times(path) == due
            ended = await engine.get("a").result(timeout=10)
            assert ended.timestamp() * 1000 >= due[0] - 1
            assert due_times(path) == []
        check_tables(path)

    together(scenario())


def test_G8_after_a_restart_beyond_the_fire_time_the_timer_fires_at_once(tmp_path: Path, cache_size: int) -> None:
    clock = ShiftedClock()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, long_sleep, cache_size=cache_size, providers=clock) as engine:
            await engine.start(long_sleep, 3600.0, id="a")
            due = due_times(path)[0]
        clock.shift_ms = 3_700_000
        async with engine_of(path, long_sleep, cache_size=cache_size, providers=clock) as engine:
            ended = await engine.get("a").result(timeout=5)
            assert round(ended.timestamp() * 1000) == due
        check_tables(path)

    together(scenario())


def test_W9_a_clock_that_goes_back_neither_moves_time_back_nor_fires_early(tmp_path: Path) -> None:
    clock = ShiftedClock()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, three_sleeps, long_sleep, providers=clock) as engine:
            first = await engine.run(three_sleeps, id="a")
            clock.shift_ms = -3_600_000
            handle = await engine.start(three_sleeps, id="b")
            assert (await handle.describe()).created_at >= first[-1]

    together(scenario())


def test_D4_after_downtime_an_earlier_timer_goes_before_a_later_message(tmp_path: Path, cache_size: int) -> None:
    """The activity is answered after the timer was due, while nobody held the instance."""
    clock = ShiftedClock()
    started = asyncio.Event()
    go_on = asyncio.Event()

    @hf.activity
    async def slow() -> str:
        started.set()
        await go_on.wait()
        return "answer"

    @hf.workflow
    async def race() -> list[str]:
        order: list[str] = []

        async def note(text: str, wait: Callable[[], object]) -> None:
            await wait()  # type: ignore[misc]  # a coroutine
            order.append(text)

        await asyncio.gather(note("activity", slow), note("timer", lambda: asyncio.sleep(60)))
        return order

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, race, cache_size=cache_size, providers=clock) as engine:
            await engine.start(race, id="a")
        clock.shift_ms = 120_000
        async with engine_of(path, slow, providers=clock):  # runs the activity, and does not know the workflow
            await started.wait()
            go_on.set()
            await until(lambda: rows(path, "SELECT 1 FROM inbox"))
        async with engine_of(path, race, cache_size=cache_size, providers=clock) as engine:
            assert await engine.get("a").result(timeout=10) == ["timer", "activity"]
        check_tables(path)

    together(scenario())


def test_G10_timers_due_together_fire_in_order_of_due_time_then_of_start(tmp_path: Path, cache_size: int) -> None:
    clock = ShiftedClock()

    @hf.workflow
    async def many() -> list[int]:
        order: list[int] = []

        async def wait(number: int, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(number)

        await asyncio.gather(*(wait(number, 60.0 - number // 2) for number in range(8)))
        return order

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, many, cache_size=cache_size, providers=clock) as engine:
            await engine.start(many, id="a")
        clock.shift_ms = 120_000
        async with engine_of(path, many, cache_size=cache_size, providers=clock) as engine:
            assert await engine.get("a").result(timeout=10) == [6, 7, 4, 5, 2, 3, 0, 1]
        events = history_of(path, 1)
        stamps = [time for event in events if (time := getattr(event, "time_ms", None)) is not None]
        assert stamps == sorted(stamps)

    together(scenario())


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, 0.0, float("inf")])
def test_odd_delays_are_an_error_nothing_at_all_or_for_ever(cache_size: int, seconds: float) -> None:
    @hf.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(seconds)
        except TimeoutError:
            return "for ever"
        except ValueError:
            return "refused"
        return "at once"

    expected = "refused" if seconds != seconds else "for ever" if seconds > 0 else "at once"  # noqa: PLR0124
    assert finish(flow, cache_size=cache_size) == expected


def test_a_thousand_timers_of_one_instance_all_fire(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> int:
        await asyncio.gather(*(asyncio.sleep(0.001 * (number % 20)) for number in range(1000)))
        return 1

    assert finish(flow, cache_size=cache_size) == 1
