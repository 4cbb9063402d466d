"""The shutdown of a worker (W10): instances are released at once, ends of attempts are recorded until it is over."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import attempts_of, live_instances, worker_of

import holdfast as hf
from holdfast.errors import ClientClosed
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify, ignore_wakeups

runs: list[str] = []


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    runs.clear()


@hf.activity
async def saves_what_it_has() -> str:
    """A body that, told to stop, brings what it does to an end."""
    runs.append("saves")
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)
    return f"saved {len(runs)}"


@hf.workflow
async def saving() -> str:
    return await saves_what_it_has()


def stored(path: Path) -> list[tuple[str, int, int]]:
    return [
        (str(state), failures, losses)
        for state, failures, losses in rows(path, "SELECT state, failures, losses FROM attempts ORDER BY attempt")
    ]


async def runs_so_far(count: int) -> None:
    await until(lambda: len(runs) == count)


def test_W10_a_result_that_a_body_gives_when_told_to_stop_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, saves_what_it_has, saving) as engine:
            await engine.start(saving, id="a")
            await runs_so_far(1)
        assert stored(path) == [("COMPLETED", 0, 0)]
        async with engine_of(path, saves_what_it_has, saving) as engine:
            assert await engine.get("a").result(timeout=10) == "saved 1"
        assert runs == ["saves"]
        check_tables(path)

    together(scenario())


def test_W10_instances_of_a_worker_that_stops_do_not_wait_for_its_bodies(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    @hf.activity
    async def lingers() -> None:
        runs.append("lingers")
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            await may_end.wait()
            raise

    @hf.workflow
    async def lingering() -> None:
        await lingers()

    @hf.workflow
    async def naps() -> str:
        await asyncio.sleep(0.5)
        return "awake"

    @hf.workflow
    async def listens() -> str:
        return await hf.event("word", str)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        stopping = engine_of(path, lingers, lingering, naps, listens)
        await stopping.open()
        await stopping.start(lingering, id="body")
        own_call = asyncio.create_task(stopping.run(naps, id="timer"))
        await stopping.start(listens, id="event")
        await runs_so_far(1)
        async with engine_of(path, naps, listens) as other:
            closing = asyncio.create_task(stopping.close())
            await until(lambda: not live_instances(worker_of(stopping)))
            await other.get("event").raise_event("word", "hello")
            assert await other.get("event").result(timeout=3) == "hello"
            assert await other.get("timer").result(timeout=3) == "awake"
            assert await own_call == "awake", "a call of the engine that closes gets the result of the other worker"
            assert not closing.done(), "the body still runs"
            may_end.set()
            await closing
        check_tables(path)

    together(scenario(), seconds=runtime_attempts.SHUTDOWN_SECONDS)


def test_W10_a_call_that_waits_for_an_instance_of_a_closing_engine_raises_ClientClosed(tmp_path: Path) -> None:
    @hf.workflow
    async def naps() -> str:
        await asyncio.sleep(0.2)
        return "awake"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, saves_what_it_has, saving, naps) as engine:
            await engine.start(saving, id="body")
            call = asyncio.create_task(engine.run(naps, id="timer"))
            await runs_so_far(1)
            await until(lambda: len(live_instances(worker_of(engine))) == 2)
        with pytest.raises(ClientClosed, match="the instance continues without it"):
            await call
        async with engine_of(path, saves_what_it_has, saving, naps) as engine:
            assert await engine.get("timer").result(timeout=10) == "awake"
        check_tables(path)

    together(scenario())


def test_W10_a_thread_that_ends_during_the_farewell_is_heard(tmp_path: Path) -> None:
    """Nobody waits for it; but while the worker waits for others, its answer counts."""
    may_end, has_ended = threading.Event(), asyncio.Event()

    @hf.activity
    def blocks() -> str:
        runs.append("blocks")
        may_end.wait(10)
        return f"unblocked {len(runs)}"

    @hf.workflow
    async def blocking() -> str:
        return await blocks()

    @hf.activity
    async def lingers() -> None:
        runs.append("lingers")
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            may_end.set()
            await has_ended.wait()
            raise

    @hf.workflow
    async def lingering() -> None:
        await lingers()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, blocks, blocking, lingers, lingering) as engine:
            await engine.start(blocking, id="a")
            await engine.start(lingering, id="b")
            await runs_so_far(2)
            worker = worker_of(engine)
            watching = asyncio.create_task(until(lambda: len(attempts_of(worker).running) == 1))
            watching.add_done_callback(lambda _: has_ended.set())
        async with engine_of(path, blocks, blocking) as engine:
            assert await engine.get("a").result(timeout=10) == "unblocked 2"
        assert sorted(runs) == ["blocks", "lingers"]
        check_tables(path)

    together(scenario())


def test_W10_a_thread_that_does_not_end_is_not_waited_for_and_runs_again_elsewhere(tmp_path: Path) -> None:
    may_end = threading.Event()

    @hf.activity
    def blocks() -> int:
        runs.append("blocks")
        if len(runs) == 1:
            may_end.wait(60)
        return len(runs)

    @hf.workflow
    async def blocking() -> int:
        return await blocks()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, blocks, blocking) as engine:
            await engine.start(blocking, id="a")
            await runs_so_far(1)
        assert stored(path) == [("TIMED_OUT", 0, 0), ("READY", 0, 0)], "a clean stop is no loss"
        async with engine_of(path, blocks, blocking) as engine:
            assert await engine.get("a").result(timeout=10) == 2
        check_tables(path)

    try:
        together(scenario(), seconds=runtime_attempts.SHUTDOWN_SECONDS)
    finally:
        may_end.set()


@pytest.mark.parametrize("ending", [asyncio.CancelledError, RuntimeError], ids=["stops", "stumbles"])
def test_W10_a_body_that_stops_when_told_has_not_failed(tmp_path: Path, ending: Callable[[], BaseException]) -> None:
    """Many libraries turn being cancelled into an error of their own. It is no failure of the activity."""

    @hf.activity(retry=hf.Retry(attempts=1))
    async def waits() -> int:
        runs.append("waits")
        if len(runs) == 1:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                raise ending() from None
        return len(runs)

    @hf.workflow
    async def waiting() -> int:
        return await waits()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, waits, waiting) as engine:
            await engine.start(waiting, id="a")
            await runs_so_far(1)
        assert stored(path) == [("TIMED_OUT", 0, 0), ("READY", 0, 0)]
        async with engine_of(path, waits, waiting) as engine:
            assert await engine.get("a").result(timeout=10) == 2
        check_tables(path)

    together(scenario())


def test_W10_a_worker_that_stops_starts_no_attempt_and_no_first_turn(tmp_path: Path) -> None:
    """Attempts that a turn schedules during the shutdown wait for other workers: here they could only be lost."""

    @hf.activity(rerun_after_loss=False)
    async def once() -> str:
        runs.append("once")
        return "once"

    @hf.workflow
    async def scheduling() -> str:
        await hf.event("go")
        return await once()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        engine = engine_of(path, saves_what_it_has, saving, once, scheduling)
        async with engine:
            await engine.start(saving, id="a")
            waiting = await engine.start(scheduling, id="b")
            await runs_so_far(1)
            worker = worker_of(engine)

            async def act_late() -> None:
                await until(lambda: worker._is_stopping)
                await waiting.raise_event("go")
                await engine.start(scheduling, id="c")

            late = asyncio.create_task(act_late())
            settle = worker.lease.settle

            async def settle_late() -> None:
                await late  # before the instances are released
                await settle()

            worker.lease.settle = settle_late  # type: ignore[method-assign]
        assert rows(path, "SELECT state, owner FROM attempts WHERE name LIKE '%once'") == [("READY", None)]
        assert rows(path, "SELECT turn FROM instances WHERE id = 'c'") == [(0,)]
        async with engine_of(path, once, scheduling) as engine:
            assert await engine.get("b").result(timeout=10) == "once"
            await engine.get("c").raise_event("go")
            assert await engine.get("c").result(timeout=10) == "once"
        check_tables(path)

    together(scenario())


def test_W10_answers_that_wait_behind_a_turn_on_its_way_to_disk_are_kept(tmp_path: Path) -> None:
    has_answered, may_write = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def first() -> int:
        runs.append("first")
        return 1

    @hf.activity
    async def second() -> int:
        await until(has_answered.is_set)
        runs.append("second")
        return 2

    @hf.workflow
    async def both() -> int:
        return sum(await asyncio.gather(first(), second()))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, first, second, both) as engine:
            commit = engine._session.store.commit

            async def slow(
                commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
            ) -> list[Outcome]:
                if any(isinstance(member, Turn) for member in members):
                    has_answered.set()
                    await may_write.wait()
                return await commit(commit_id, members, notify)

            engine._session.store.commit = slow  # type: ignore[method-assign]
            await engine.start(both, id="a")
            worker = worker_of(engine)
            await until(lambda: any(live.queue for live in live_instances(worker).values()))
            asyncio.get_running_loop().call_later(0.01, may_write.set)
        assert [state for state, _, _ in stored(path)] == ["COMPLETED", "COMPLETED"]
        async with engine_of(path, first, second, both) as engine:
            assert await engine.get("a").result(timeout=10) == 3
        assert runs == ["first", "second"]
        check_tables(path)

    together(scenario())


def test_G11_what_a_turn_logged_is_written_though_its_commit_is_told_during_the_farewell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.workflow")
    is_on_disk = asyncio.Event()

    @hf.activity
    async def quick() -> int:
        return 1

    @hf.workflow
    async def logging_workflow() -> None:
        await quick()
        hf.log.info("after the step")
        await asyncio.sleep(3_600)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, quick, logging_workflow) as engine:
            worker, commit = worker_of(engine), engine._session.store.commit

            async def told_late(
                commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
            ) -> list[Outcome]:
                outcomes = await commit(commit_id, members, notify)
                if any(isinstance(member, Turn) for member in members):
                    is_on_disk.set()
                    await until(lambda: not live_instances(worker))
                return outcomes

            engine._session.store.commit = told_late  # type: ignore[method-assign]
            await engine.start(logging_workflow, id="a")
            await is_on_disk.wait()
        assert [record.getMessage() for record in caplog.records] == ["after the step"]

    together(scenario())
