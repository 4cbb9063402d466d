"""Policies for ids (G3): a new instance under an id that was used before, or instead of one that is still open."""

import asyncio
from pathlib import Path
from typing import get_args

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.admission import IdPolicy, IdPolicyOption

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubles(number: int) -> int:
    return await double(number)


class Held:
    """Definitions whose bodies hang until a test lets them go, and a note of who began and who was stopped."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.stopped: list[int] = []
        self.go_on = asyncio.Event()

        @hf.activity(heartbeat=0.2)
        async def hold(number: int) -> int:
            self.begun.append(number)
            try:
                while not self.go_on.is_set():
                    hf.heartbeat()
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.stopped.append(number)
                raise
            return number

        @hf.workflow
        async def holds(number: int) -> int:
            return await hold(number)

        self.definitions = (hold, holds)


def test_the_literal_of_the_signature_is_the_table_of_the_policies() -> None:
    words = {word for part in get_args(IdPolicyOption) if part is not IdPolicy for word in get_args(part)}
    assert words == set(IdPolicy)


@CACHES
def test_G3_reuse_starts_anew_once_the_old_one_is_closed_and_keeps_it(tmp_path: Path, cache_size: int) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, double, doubles, cache_size=cache_size) as engine:
            first = await engine.start(doubles, 1, id="a", policy="reuse")
            assert await first.result() == 2
            second = await engine.start(doubles, 1, id="a", policy="reuse")
            assert second.is_new
            assert await second.result() == 2
            assert await engine.run(doubles, 3, id="a", policy="reuse") == 6
            assert await engine.run(doubles, 3, id="a") == 6, "the default policy finds the newest"
            with pytest.raises(hf.InstanceConflict):
                await engine.start(doubles, 1, id="a")
            assert await first.result() == 2, "a handle stays with the instance that it started"
            assert await engine.get("a").result() == 6
            everyone = await engine.list()
            newest_first = [record.number for record in everyone]
            assert newest_first == sorted(set(newest_first), reverse=True)
            assert newest_first[1:] == [second.number, first.number]
            assert [summary.is_current for summary in everyone] == [True, False, False]
        check_tables(path)
        assert audit(path) == []
        assert rows(path, "SELECT count(*) FROM attempts GROUP BY number") == [(1,), (1,), (1,)]

    together(scenario())


def test_G3_reuse_of_an_id_that_is_open_is_the_same_instance_or_a_conflict(tmp_path: Path) -> None:
    async def scenario() -> None:
        held = Held()
        async with engine_of(tmp_path / "shop.db", *held.definitions) as engine:
            first = await engine.start("holds", 1, id="a")
            again = await engine.start("holds", 1, id="a", policy="reuse")
            assert (again.is_new, again.number) == (False, first.number)
            with pytest.raises(hf.InstanceConflict, match="different input"):
                await engine.start("holds", 2, id="a", policy="reuse")
            held.go_on.set()
            assert await again.result() == 1
            assert await engine.run("holds", 2, id="a", policy="reuse") == 2
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G3_terminate_existing_replaces_the_open_one_and_whoever_waits_for_it_is_told(
    tmp_path: Path, cache_size: int
) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        held = Held()
        async with engine_of(path, *held.definitions, cache_size=cache_size) as engine:
            by_run = asyncio.ensure_future(engine.run("holds", 1, id="a"))
            await until(lambda: held.begun == [1])
            first = await engine.start("holds", 1, id="a")
            by_handle = asyncio.ensure_future(first.result())
            by_id = asyncio.ensure_future(engine.get("a").result())
            await asyncio.sleep(0)
            second = await engine.start("holds", 2, id="a", policy="terminate_existing")
            assert second.is_new
            for waiting in (by_handle, by_id, by_run):
                with pytest.raises(hf.WorkflowTerminated, match="a was terminated: its id was started again"):
                    await waiting
            await until(lambda: held.stopped == [1])
            held.go_on.set()
            assert await second.result() == await engine.get("a").result() == 2
            with pytest.raises(hf.WorkflowTerminated):
                await first.result()
            with pytest.raises(hf.InstanceClosed):
                await first.terminate()
            assert await engine.run("holds", 3, id="a", policy="terminate_existing") == 3, (
                "like reuse when it is closed"
            )
        check_tables(path)
        assert audit(path) == []
        states = rows(path, "SELECT state FROM instances ORDER BY number")
        assert states == [("TERMINATED",), ("COMPLETED",), ("COMPLETED",)]

    together(scenario())


def test_G1_an_owner_elsewhere_is_fenced_and_the_waiters_of_every_process_are_told(tmp_path: Path) -> None:
    """The id is started anew by a client; a worker has the old instance live, another client waits for it."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        held = Held()
        async with engine_of(path, *held.definitions) as owner:
            await owner.start("holds", 1, id="a")
            await until(lambda: held.begun == [1])
            waits, starts = await hf.connect(path), await hf.connect(path)
            waiting = asyncio.ensure_future(waits.get("a").result())
            here = asyncio.ensure_future(owner.get("a").result())
            await asyncio.sleep(0)
            second = await starts.start("holds", 2, id="a", policy="terminate_existing")
            for told in (waiting, here):
                with pytest.raises(hf.WorkflowTerminated):
                    await told
            await until(lambda: held.stopped == [1])  # with its next heartbeat
            held.go_on.set()
            assert await second.result() == 2
            await waits.close()
            await starts.close()
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_G3_many_that_replace_each_other_at_once_leave_one_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        held = Held()
        async with engine_of(path, *held.definitions) as one, engine_of(path, *held.definitions) as two:
            handles = await asyncio.gather(
                *(
                    engine.start("holds", number, id="a", policy="terminate_existing")
                    for number in range(10)
                    for engine in (one, two)
                )
            )
            assert len({handle.number for handle in handles}) == len(handles)
            held.go_on.set()
            results = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
            newest = max(range(len(handles)), key=lambda at: handles[at].number or 0)
            assert [at for at, result in enumerate(results) if not isinstance(result, hf.WorkflowTerminated)] == [
                newest
            ]
            assert results[newest] == newest // 2
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_the_idempotency_key_of_a_new_instance_is_a_new_one(tmp_path: Path) -> None:
    """Otherwise whoever deduplicates by it would take the new order for the old one."""
    keys: list[str] = []

    @hf.activity
    async def notes() -> None:
        keys.append(hf.idempotency_key())

    @hf.workflow
    async def flow() -> None:
        await notes()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", notes, flow) as engine:
            for _ in range(2):
                await engine.run(flow, id="a", policy="reuse")

    together(scenario())
    assert len(set(keys)) == 2
