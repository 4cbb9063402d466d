"""A worker that was silent too long: it stops acting, takes a new key, and nothing is stranded (W5-W7, W10)."""

import asyncio
from pathlib import Path

from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.runtime.providers import SystemProviders


class SleepingMachine(SystemProviders):
    """A machine whose clock CLOCK_BOOTTIME can jump, as it does while a laptop's lid is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms = 0

    def elapsed_ms(self) -> int:
        return super().elapsed_ms() + self.slept_ms


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def naps(count: int) -> int:
    total = 0
    for number in range(count):
        await asyncio.sleep(0.02)
        total += await double(number)
    return total


def test_W7_a_lone_worker_whose_lease_ran_out_goes_on_under_a_new_key(tmp_path: Path) -> None:
    machine = SleepingMachine()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps, providers=machine, lease=30) as engine:
            handles = [await engine.start(naps, 10, id=f"i{number}") for number in range(5)]
            assert engine.worker is not None
            key = engine.worker.key
            await asyncio.sleep(0.05)
            machine.slept_ms = 60_000
            for handle in handles:
                assert await handle.result(timeout=10) == 90
            assert engine.worker.key != key
            assert rows(path, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
        check_tables(path)

    together(scenario())


def test_W6_a_worker_that_was_declared_dead_changes_nothing_and_takes_a_new_key(tmp_path: Path) -> None:
    """Somebody else ends its lease while it is healthy: its next commits are refused, and it begins anew."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps, lease=1) as engine, engine_of(path) as other:
            handle = await engine.start(naps, 10, id="a")
            assert engine.worker is not None
            assert other.worker is not None
            key = engine.worker.key
            await other.worker._janitor.lose(key, at_deadline=False)
            assert await handle.result(timeout=10) == 90
            worker = engine.worker
            await until(lambda: worker.key != key)
            assert rows(path, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
        check_tables(path)
        assert [state for (state,) in rows(path, "SELECT DISTINCT state FROM workers")] == ["INACTIVE"]

    together(scenario())


def test_W10_a_clean_stop_hands_everything_over_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps, lease=300, judge_same_host=False) as second:
            async with engine_of(path, double, naps, lease=300, judge_same_host=False) as first:
                handles = [await first.start(naps, 20, id=f"i{number}") for number in range(10)]
                await asyncio.sleep(0.1)
            for handle in handles:
                assert await second.get(handle.id).result(timeout=10) == 380
        check_tables(path)

    together(scenario())


def test_W10_stopping_at_any_moment_leaves_nothing_stuck(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        for round_ in range(25):
            async with engine_of(path, double, naps) as engine:
                for number in range(5):
                    await engine.start(naps, 5, id=f"i{number}")
                await asyncio.sleep(0.003 * round_)
        async with engine_of(path, double, naps) as engine:
            for number in range(5):
                assert await engine.get(f"i{number}").result(timeout=10) == 20
        check_tables(path)

    together(scenario())
