"""The cache of live instances: how small it may be without anybody noticing (G2)."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, together

import holdfast as hf


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def twice_double(number: int) -> int:
    return await double(await double(number))


@hf.workflow
async def sleeper(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


ALL = (double, twice_double, sleeper)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shop.db") if request.param == "file" else ":memory:"


@pytest.mark.parametrize("cache_size", [0, 1, 3])
def test_G2_more_instances_than_the_cache_holds_all_finish(store: str, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            runs = [engine.run(twice_double, number, id=f"i{number}") for number in range(40)]
            assert await asyncio.gather(*runs) == [4 * number for number in range(40)]
            check_tables(path_of(engine))

    together(scenario())


@pytest.mark.parametrize("cache_size", [0, 1, 2])
def test_G2_sleeping_instances_in_the_cache_make_room_for_others(store: str, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine:
            for number in range(4):
                await engine.start(sleeper, 3600.0, id=f"sleeper-{number}")
            assert await engine.run(twice_double, 1, id="awake") == 4
            late = [engine.run(sleeper, 0.05, id=f"short-{number}") for number in range(4)]
            assert await asyncio.gather(*late) == ["awake"] * 4

    together(scenario())
