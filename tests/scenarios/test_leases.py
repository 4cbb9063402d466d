"""A worker that was silent too long: it stops acting, takes a new key, and nothing is stranded (W5-W7, W10)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.scenarios.support import SleepingMachine, check_tables, engine_of, rows, together, until
from tests.support.inside import committer_of, end_lease, key_of, lose_lease, mark_lost, replace_registration, worker_of

import holdfast as hf
from holdfast.errors import WorkerFenced
from holdfast.runtime import worker_lease
from holdfast.runtime.duties import maintenance
from holdfast.storage.members.instances import Release
from holdfast.storage.members.outcomes import Failed
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.testing.simulation.simulation import kill_engine


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
            key = key_of(worker_of(engine))
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'COMPLETED'"))
            machine.slept_ms = 60_000
            for handle in handles:
                assert await handle.result(timeout=10) == 90
            assert key_of(worker_of(engine)) != key
            assert rows(path, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
        check_tables(path)

    together(scenario())


def test_W7_a_worker_commits_nothing_in_its_own_name_after_its_lease(tmp_path: Path) -> None:
    """Its clock decides, before any other check: the store would still accept the group."""

    @hf.workflow
    async def listens() -> str:
        return await hf.event("word", str)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, listens, lease=300) as engine:
            handle = await engine.start(listens, id="it")
            assert handle.number is not None
            worker = worker_of(engine)
            [(owner, fence)] = rows(path, "SELECT owner, fence FROM instances")
            end_lease(worker)
            outcome = await committer_of(worker).commit(Release(number=handle.number, owner=owner, fence=fence))
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, WorkerFenced)
        check_tables(path)

    together(scenario())


def test_W6_a_worker_that_was_declared_dead_changes_nothing_and_takes_a_new_key(tmp_path: Path) -> None:
    """Somebody else ends its lease while it is healthy: its next commits are refused, and it begins anew."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps, lease=1) as engine, engine_of(path) as other:
            handle = await engine.start(naps, 10, id="a")
            key = key_of(worker_of(engine))
            await mark_lost(worker_of(other), key)
            assert await handle.result(timeout=10) == 90
            worker = worker_of(engine)
            await until(lambda: key_of(worker) != key)
            assert rows(path, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
        check_tables(path)
        assert [state for (state,) in rows(path, "SELECT DISTINCT state FROM workers")] == ["INACTIVE"]

    together(scenario())


def test_W7_what_a_client_says_needs_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker beside it has none for a while: starts, events and requests to end are in nobody's name."""
    machine, may_register = SleepingMachine(), asyncio.Event()

    @hf.workflow
    async def listens() -> str:
        return await hf.event("word", str)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", listens, providers=machine, lease=300) as engine:
            worker = worker_of(engine)

            async def late(register: Callable[[], Awaitable[None]]) -> None:
                await may_register.wait()
                await register()

            replace_registration(worker, late, monkeypatch)
            handles = [await engine.start(listens, id=f"i{number}") for number in range(2)]
            machine.slept_ms = 600_000
            handles.append(await engine.start(listens, id="late"))
            await handles[0].raise_event("word", "heard")
            await handles[1].cancel("enough")
            await handles[2].raise_event("word", "too")
            may_register.set()
            assert await handles[0].result(timeout=10) == "heard"
            assert await handles[2].result(timeout=10) == "too"
            with pytest.raises(hf.WorkflowCancelled, match="enough"):
                await handles[1].result(timeout=10)
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_W7_a_body_that_its_worker_had_to_abandon_has_not_failed_and_is_run_again(tmp_path: Path) -> None:
    """Even one that may be tried only once: the loss of a lease is no failure, and cancelling it is no answer."""
    runs: list[asyncio.Event] = []

    @hf.activity(retry=hf.Retry(attempts=1))
    async def counts() -> int:
        runs.append(asyncio.Event())
        if len(runs) == 1:
            await runs[0].wait()
        return len(runs)

    @hf.workflow
    async def counting() -> int:
        return await counts()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counts, counting, max_activities=1) as engine:
            handle = await engine.start(counting, id="a")
            await until(lambda: runs)
            lose_lease(worker_of(engine))
            assert await handle.result(timeout=10) == 2, "its slot is free, too"
        check_tables(path)
        assert rows(path, "SELECT state, failures, losses FROM attempts ORDER BY attempt") == [
            ("TIMED_OUT", 0, 0),
            ("COMPLETED", 0, 1),
        ]

    together(scenario())


def test_W5_a_worker_that_cannot_take_a_new_key_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[bool] = []

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps) as engine:
            worker = worker_of(engine)
            key = key_of(worker)

            async def refuse_once(register: Callable[[], Awaitable[None]]) -> None:
                tries.append(True)
                if len(tries) == 1:
                    raise OSError("the disk is full for a moment")
                await register()

            replace_registration(worker, refuse_once, monkeypatch)
            monkeypatch.setattr(worker_lease, "REGISTER_AGAIN_SECONDS", 0.01)
            handle = await engine.start(naps, 3, id="a")
            lose_lease(worker)
            assert await handle.result(timeout=10) == 6
            assert key_of(worker) != key
            assert len(tries) == 2
        check_tables(path)

    together(scenario())


def test_W7_an_idle_worker_notices_that_its_lease_ran_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits nothing that could be refused. What is left for it elsewhere would never be looked at."""
    machine = SleepingMachine()
    monkeypatch.setattr(maintenance, "POLL_SECONDS", 0.01)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", double, naps, providers=machine, lease=300) as engine:
            worker = worker_of(engine)
            key = key_of(worker)
            machine.slept_ms = 600_000
            await until(lambda: key_of(worker) != key)

    together(scenario(), seconds=10)


def test_W8_what_a_janitor_that_died_half_way_left_behind_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had moved one batch of a lost worker's work. The worker is INACTIVE, so nobody loses it a second time."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        first = engine_of(path, double, naps, detect_local_deaths=False)
        await first.__aenter__()
        for number in range(4):
            await first.start(naps, 3, id=f"i{number}")
        key = key_of(worker_of(first))
        await kill_engine(first)
        async with engine_of(path, detect_local_deaths=False) as janitor:
            await committer_of(worker_of(janitor)).commit(MarkWorkerLost(key=key, at_deadline=False, limit=1))
        assert rows(path, "SELECT count(*) > 0 FROM instances WHERE owner = ?", key) == [(1,)]
        async with engine_of(path, double, naps, detect_local_deaths=False) as second:
            for number in range(4):
                assert await second.get(f"i{number}").result(timeout=10) == 6
        check_tables(path)

    monkeypatch.setattr("holdfast.runtime.duties.lost_workers.VERIFY_EVERY", 10**9)  # in the first round only
    together(scenario())


def test_W10_a_clean_stop_hands_everything_over_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, double, naps, lease=300, detect_local_deaths=False) as second:
            async with engine_of(path, double, naps, lease=300, detect_local_deaths=False) as first:
                handles = [await first.start(naps, 20, id=f"i{number}") for number in range(10)]
                await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'COMPLETED'"))
            for handle in handles:
                assert await second.get(handle.id).result(timeout=10) == 380
        check_tables(path)

    together(scenario())


OPEN = "SELECT 1 FROM instances WHERE closed_at_ms IS NULL"


def test_W10_stopping_at_any_moment_leaves_nothing_stuck(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        for round_ in range(25):
            async with engine_of(path, double, naps) as engine:
                for number in range(5):
                    await engine.start(naps, 5, id=f"i{number}")
                committer, most = committer_of(worker_of(engine)), round_ + 5
                await until(lambda: committer.groups >= most or not rows(path, OPEN))  # noqa: B023 - at once
        async with engine_of(path, double, naps) as engine:
            for number in range(5):
                assert await engine.get(f"i{number}").result(timeout=10) == 20
        check_tables(path)

    together(scenario())
