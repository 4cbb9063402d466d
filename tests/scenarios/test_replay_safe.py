"""What workflow code may ask for, and what it sees after a replay: the same, once (G8-G12); and peers' failures."""

import asyncio
import contextlib
import datetime as dt
import logging
import random  # noqa: TID251 - wrong on purpose: the guard finds it
import time
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, rows, together, until

import holdfast as hf

computed: list[int] = []


def compute() -> int:
    computed.append(1)
    return len(computed)


told: list[list[str]] = []


@hf.activity
async def nothing() -> None:
    """A step."""


@hf.activity
async def tell(found: list[str]) -> None:
    told.append(found)


@hf.workflow
async def asks() -> list[list[str]]:
    found: list[list[str]] = []
    for _ in range(3):
        number = hf.side_effect(compute, int)
        found.append([str(hf.now()), str(hf.random().random()), str(hf.uuid4()), str(number)])
        hf.log.info("line %d of %s", len(found), hf.info().id)
        await tell(found[-1])
        await asyncio.sleep(0.05)
    return found


@pytest.mark.parametrize("cache_size", [100, 0])
def test_G8_time_chance_and_side_effects_are_the_same_after_every_replay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cache_size: int
) -> None:
    computed.clear()
    told.clear()
    caplog.set_level(logging.INFO, logger="holdfast.workflow")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        before = dt.datetime.now(dt.UTC)  # noqa: TID251 - to compare
        async with engine_of(path, tell, asks, cache_size=cache_size) as engine:
            await engine.start(asks, id="a")
            await until(lambda: rows(path, "SELECT 1 FROM timers"))
        async with engine_of(path, tell, asks, cache_size=cache_size) as engine:
            found = await engine.get("a").result(timeout=10)
        recorded = list(found)
        assert recorded == told, "what the code saw when it ran first is what it sees in the end"
        assert [row[3] for row in recorded] == ["1", "2", "3"], "each side effect was computed once"
        assert len({row[1] for row in recorded}) == len({row[2] for row in recorded}) == 3
        times = [dt.datetime.fromisoformat(row[0]) for row in recorded]
        assert times == sorted(times)
        assert times[0] >= before - dt.timedelta(milliseconds=1)
        check_tables(path)

    together(scenario())
    assert len(computed) == 3
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.workflow"]
    assert lines == ["line 1 of a", "line 2 of a", "line 3 of a"]


def test_info_names_the_execution() -> None:
    @hf.workflow(name="who")
    async def who() -> list[Any]:
        return [*hf.info()[:8], hf.info().root]

    assert finish(who) == ["it", "who", 1, 1, False, None, "", 1, "it"]


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        (lambda: time.sleep(0.001), "time.sleep"),
        (lambda: random.random(), "random"),  # noqa: S311, PLW0108 - workflow code must make the call
        (lambda: dt.datetime.now(dt.UTC), "now"),  # noqa: TID251
        (lambda: time.time(), "time"),  # noqa: TID251, PLW0108
        (lambda: Path("/etc/hostname").read_text(encoding="utf-8"), "open"),
        (lambda: asyncio.get_running_loop().run_in_executor(None, print), "run_in_executor"),
    ],
)
def test_a_common_mistake_in_workflow_code_fails_with_a_sentence(mistake: Any, named: str) -> None:
    @hf.workflow
    async def flow() -> None:
        mistake()

    with pytest.raises(hf.WorkflowFailed) as caught:
        finish(flow)
    assert isinstance(caught.value.cause, hf.errors.ForbiddenInWorkflow | hf.errors.NotInWorkflow)
    assert named in str(caught.value.cause)
    if isinstance(caught.value.cause, hf.errors.ForbiddenInWorkflow):
        assert "test_replay_safe.py:" in str(caught.value.cause)


def test_duroxide_finally_runs_once_when_warm_and_not_once_per_turn() -> None:
    entered: list[str] = []

    @hf.workflow
    async def flow() -> int:
        try:
            for _ in range(5):
                await nothing()
        finally:
            entered.append("finally")
        return len(entered)

    assert finish(flow, nothing) == 1
    assert entered == ["finally"]


def test_D1_a_handle_of_an_unknown_id_freezes_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", tell, asks) as engine:
            waiting = asyncio.create_task(engine.get("nobody").result())
            assert len(await engine.run(asks, id="a")) == 3
            with pytest.raises(hf.InstanceNotFound):
                await waiting

    together(scenario())


def test_D2_contention_of_many_engines_fails_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with contextlib.AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(engine_of(path, tell, asks)) for _ in range(4)]
            runs = [engine.run(asks, id=f"{at}-{n}") for at, engine in enumerate(engines) for n in range(10)]
            assert all(len(found) == 3 for found in await asyncio.gather(*runs))
        check_tables(path)

    together(scenario())


def test_D3_without_a_crash_no_body_runs_twice(tmp_path: Path) -> None:
    ran: list[str] = []

    @hf.activity
    async def once(number: int) -> None:
        ran.append(f"{hf.activity_info().instance_id} {number}")
        await asyncio.sleep(0.001)

    @hf.workflow
    async def many() -> None:
        await asyncio.gather(*(once(number) for number in range(20)))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, once, many) as first, engine_of(path, once, many, max_activities=3) as second:
            await asyncio.gather(*(engine.run(many, id=f"{at}") for at, engine in enumerate((first, second) * 4)))

    together(scenario())
    assert len(ran) == len(set(ran)) == 160
