"""G3: a start that finds its instance runs no workflow code, and a first turn that fails is run once (G12)."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import instances_of, worker_of

import holdfast as hf
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.core.admission import StartVerdict
from holdfast.runtime.turns import turn_taker
from holdfast.storage.records import InstanceNumber

runs: list[int] = []


@hf.workflow
async def order(number: int) -> int:
    runs.append(number)
    value = hf.side_effect(lambda: len(runs), int)
    await hf.event("go")
    return value


@hf.workflow
async def spins() -> None:
    runs.append(0)
    while True:
        pass


@pytest.fixture(autouse=True)
def forget() -> None:
    runs.clear()


@pytest.mark.parametrize("cache_size", [1_000, 0])
def test_G3_a_start_that_finds_its_instance_runs_no_code(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, order, cache_size=cache_size) as engine:
            handle = await engine.start(order, 42, id="it")
            began = len(runs)
            for _ in range(3):
                again = await engine.start(order, 42, id="it")
                assert (again.is_new, again.number) == (False, handle.number)
            with pytest.raises(hf.InstanceConflict):
                await engine.start(order, 43, id="it")
            assert runs == [42] * began
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == 1
            replays = len(runs)
            assert await engine.run(order, 42, id="it") == 1, "the instance is closed, and was found"
            assert len(runs) == replays
        check_tables(path)

    together(scenario())


def test_G3_of_starts_at_the_same_time_one_runs_the_code(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", order) as engine:
            handles = await asyncio.gather(*(engine.start(order, 42, id="it") for _ in range(10)))
            assert [handle.is_new for handle in handles] == [True] + [False] * 9
            assert runs == [42]
            first = asyncio.create_task(engine.start(order, 7, id="other"))
            await asyncio.sleep(0)  # simulated time: it is on its way to disk
            first.cancel()
            assert (await engine.start(order, 7, id="other")).id == "other"

    together(scenario())


def test_G3_a_start_that_creates_its_instance_runs_its_first_turn_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, order) as engine:
            handle = await engine.start(order, 42, id="it")
            await handle.raise_event("go")
            await handle.result(timeout=10)
            for policy in ("reuse", "terminate_existing"):
                began = len(runs)
                again = await engine.start(order, 42, id="it", policy=policy)
                assert again.is_new
                assert len(runs) == began + 1
                assert rows(path, "SELECT turn FROM instances WHERE number = ?", again.number) == [(1,)]
                await again.raise_event("go")
                await again.result(timeout=10)

    together(scenario())


def test_G12_a_first_turn_that_never_awaits_is_run_once_before_it_is_blocked(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, spins, turn_limit_ms=50) as engine:
            handle = await engine.start(spins, id="it")
            with pytest.raises(hf.WorkflowBlocked, match=r"ran for more than 0\.05 s without awaiting anything"):
                await handle.result(timeout=10)
            assert len(runs) == 1
        async with engine_of(path, spins, turn_limit_ms=50) as engine:
            with pytest.raises(hf.WorkflowBlocked):
                await engine.get("it").result(timeout=10)
        assert len(runs) == 2, "the next worker tries it again"

    together(scenario())


@hf.workflow
async def opens_a_file(is_wrong: bool) -> str:
    if is_wrong:
        with suppress(hf.HoldfastError), open(__file__, encoding="utf-8"):  # noqa: ASYNC230, PTH123 - refused
            pass
    await hf.event("go")
    return "fine"


def test_G12_a_failed_first_turn_of_a_start_that_created_nothing_blocks_no_later_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finds_nothing(_: EmbeddedWorker, __: object) -> tuple[StartVerdict, None]:
        return StartVerdict.CREATE, None  # as if another process created the instance between the look and the commit

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, opens_a_file) as engine, await hf.connect(path) as client:
            handle = await engine.start(opens_a_file, False, id="it")
            with monkeypatch.context() as patched:
                patched.setattr(EmbeddedWorker, "_decide_start", finds_nothing)
                with pytest.raises(hf.InstanceConflict):
                    await engine.start(opens_a_file, True, id="it")
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == "fine"
            again = await client.start("opens_a_file", False, id="it", policy="reuse")
            await client.get("it").raise_event("go")
            assert await again.result(timeout=10) == "fine"
            assert instances_of(worker_of(engine)).first_failures == ()

    together(scenario())


def test_G12_a_failed_first_turn_is_forgotten_when_another_worker_has_claimed_the_instance(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", opens_a_file) as engine:
            instances = instances_of(worker_of(engine))
            handle = await engine.start(opens_a_file, True, id="it")
            with pytest.raises(hf.WorkflowBlocked, match="open"):
                await handle.result(timeout=10)
            assert instances.first_failures == ()
            instances._first_failures[InstanceNumber(9_999)] = "of an instance that is never claimed here"
            other = await engine.start(opens_a_file, True, id="other")
            with pytest.raises(hf.WorkflowBlocked):
                await other.result(timeout=10)
            await until(lambda: instances.first_failures == ())

    together(scenario())


left: list[str] = []


@hf.workflow
async def notes_its_teardown() -> None:
    try:
        await hf.event("sent")
    finally:
        left.append("evicted")


def test_a_start_that_ends_with_an_error_of_the_engine_leaves_no_code_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_turn(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("it cannot be built")

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", notes_its_teardown) as engine:
            monkeypatch.setattr(turn_taker, "build_turn", build_turn)
            with pytest.raises(RuntimeError, match="it cannot be built"):
                await engine.start(notes_its_teardown)
            assert left == ["evicted"]

    left.clear()
    together(scenario())
