"""A store that is filled for a measurement is sound, and its instances are like those of the engine."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.growth import filling, measures
from benchmarks.programs import sequence, step
from tests.postgres.server import Place
from tests.scenarios.support import rows

import holdfast as hf
from holdfast.audit.auditor import inspect

COUNT = 200


async def run_after(store: str) -> int:
    """The engine goes on after the copies, with numbers of its own, and finds the result of a copy."""
    async with hf.Engine(store, workflows=[sequence], activities=[step]) as engine:
        assert await engine.get(f"closed-{COUNT}").result() == filling.STEPS
        return await engine.run(sequence, 3, id="next")


def check(store: str) -> None:
    asyncio.run(filling.make_template(store))
    filling.fill(store, COUNT)
    assert asyncio.run(run_after(store)) == 3
    filling.fill(store, COUNT)
    assert asyncio.run(run_after(store)) == 3
    report = inspect(store if "://" in store else Path(store))
    assert report.problems == ()
    assert report.instances == 2 * COUNT + 2


def test_a_filled_sqlite_store_is_sound(tmp_path: Path) -> None:
    store = tmp_path / "it.db"
    check(str(store))
    [(least, most)] = rows(
        store,
        "SELECT min(turns), max(turns) FROM (SELECT count(*) AS turns FROM history "
        "JOIN instances USING (number) WHERE id LIKE 'closed-%' GROUP BY number)",
    )
    assert least == most == filling.STEPS + 1


@pytest.mark.slow
def test_a_filled_postgresql_store_is_sound(postgres: Place) -> None:
    check(postgres.url)


@pytest.mark.slow
def test_small_measures_of_growth(tmp_path: Path) -> None:
    history = measures.history(str(tmp_path / "history.db"), 100)
    assert [sample["steps"] for sample in history] == list(range(5, 101, 5))
    asyncio.run(filling.make_template(str(tmp_path / "closed.db")))
    closed = measures.closed(str(tmp_path / "closed.db"), 100, 1, 0.01, lambda: 0.0)
    assert min(closed["us_per_step"], closed["list_ms"], closed["list_running_ms"]) > 0
    assert measures.payload(str(tmp_path / "payload.db"), 1_000, "x")["bytes"] == 1_000
