"""The four time-outs, heartbeats, losses and cancellation of activities (A5, A6, A10)."""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling, outcome_of
from tests.scenarios.support import check_tables, engine_of, finish, path_of, rows, skipping, together, until
from tests.support.inside import attempts_of, claimer_of, committer_of, free_slots, slot_count, worker_of

import holdfast as hf
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts import runner as runtime_attempts

ONCE = hf.Retry(attempts=1)


def test_A5_an_async_body_beyond_start_to_close_is_cancelled_and_tried_again() -> None:
    seen: list[str] = []

    @hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=2, initial=0))
    async def slow() -> str:
        if hf.activity_info().attempt == 2:
            return "second"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "first"

    result, states, failures = outcome_of(slow)
    assert result == "second"
    assert states == [AttemptState.TIMED_OUT, AttemptState.COMPLETED]
    assert "slow did not answer in time: start_to_close is 0.05 s" in str(failures[0])
    assert seen == ["cancelled"]


def test_A5_a_body_s_own_time_out_is_a_failure_like_any_other() -> None:
    @hf.activity(start_to_close=60, heartbeat=0.01, retry=ONCE)
    async def impatient() -> None:
        await asyncio.sleep(0.05)
        hf.heartbeat()
        raise TimeoutError("the bank does not answer")

    cause, states, _ = outcome_of(impatient)
    assert (type(cause), str(cause)) == (TimeoutError, "the bank does not answer")
    assert states == [AttemptState.FAILED]


def test_A5_endless_threads_are_abandoned_counted_and_take_no_slot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.01)
    release = threading.Event()
    caplog.set_level(logging.WARNING, logger="holdfast")

    @hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=2, initial=0))
    def endless() -> None:
        release.wait(30)

    @hf.activity
    def quick() -> str:
        return "quick"

    @hf.workflow
    async def flow() -> list[str]:
        try:
            await endless()
        except hf.ActivityTimedOut as error:
            return [str(error), await quick()]
        return []

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", endless, quick, flow, max_activities=1) as engine:
            message, answer = await engine.run(flow, id="it")
            assert "endless" in message
            assert answer == "quick"
            worker = worker_of(engine)
            assert engine.abandoned_threads == 2
            warnings = [record.getMessage() for record in caplog.records if "was asked to stop" in record.getMessage()]
            assert [
                f"attempt {number} of {endless.name} of instance it was asked to stop" in text
                for number, text in enumerate(warnings, 1)
            ] == [True, True]
            await until(lambda: free_slots(worker) == 1)  # a look for work reserves it for a moment
            assert len(attempts_of(worker).abandoned) == 2
            release.set()
            await until(lambda: not attempts_of(worker).abandoned)
            assert (free_slots(worker), engine.abandoned_threads) == (1, 2), "its slot is not freed a second time"

    together(scenario())


def test_A6_a_silent_body_is_timed_out_by_the_janitor_and_told_to_stop() -> None:
    told = asyncio.Event()

    @hf.activity(heartbeat=5, retry=hf.Retry(attempts=2, initial=0))
    async def silent() -> str:
        if hf.activity_info().attempt == 2:
            return "second"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.set()
            raise
        return "first"

    async def scenario() -> None:
        flow = calling(silent)
        async with skipping(silent, flow) as engine:
            assert await engine.run(flow, id="it") == "second"
            await told.wait()
            attempts = (await engine.get("it").describe()).attempts
            assert [view.state for view in attempts] == [AttemptState.TIMED_OUT, AttemptState.COMPLETED]
            assert attempts[0].failure == "ActivityTimedOut: silent was silent for longer than its heartbeat of 5 s"
            worker = worker_of(engine)
            await until(lambda: free_slots(worker) == slot_count(worker))
            check_tables(path_of(engine))

    together(scenario())


def test_A6_a_body_that_beats_is_not_timed_out() -> None:
    @hf.activity(heartbeat=0.3, retry=ONCE)
    async def beats() -> str:
        for _ in range(26):
            hf.heartbeat()
            await asyncio.sleep(0.05)
        return "alive"

    result, states, _ = outcome_of(beats)
    assert (result, states) == ("alive", [AttemptState.COMPLETED])


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_A6_heartbeat_details_reach_the_attempt_after_a_loss(tmp_path: Path, kind: str) -> None:
    beaten = threading.Event()
    release = threading.Event()

    @hf.activity(name="copy")
    async def copies() -> Any:
        info = hf.activity_info()
        if info.attempt == 1:
            hf.heartbeat({"copied": 41})
            beaten.set()
            await asyncio.sleep(60)
        return info.details

    @hf.activity(name="copy")
    def copies_thread() -> Any:
        info = hf.activity_info()
        if info.attempt == 1:
            hf.heartbeat({"copied": 41})
            beaten.set()
            release.wait(30)
        return info.details

    async def scenario() -> None:
        activity = copies if kind == "async" else copies_thread
        flow = calling(activity)
        path = tmp_path / "shop.db"
        async with engine_of(path, activity, flow) as engine:
            await engine.start(flow, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE details IS NOT NULL"))
        async with engine_of(path, activity, flow) as engine:
            assert await engine.get("it").result(timeout=10) == {"copied": 41}
            states = [view.state for view in (await engine.get("it").describe()).attempts]
            assert states == [AttemptState.TIMED_OUT, AttemptState.COMPLETED]
        release.set()
        check_tables(path)

    together(scenario())


def test_A5_schedule_to_start_ends_an_attempt_that_nobody_takes() -> None:
    @hf.activity(queue="nobody-serves-it", schedule_to_start=0.05, retry=ONCE)
    async def waits() -> None:
        raise AssertionError("it must not run")

    cause, states, _ = outcome_of(waits, queues=["default"])
    assert isinstance(cause, hf.ActivityTimedOut)
    assert "waits did not begin within its schedule_to_start of" in str(cause)
    assert states == [AttemptState.TIMED_OUT]


def test_A5_schedule_to_close_bounds_all_attempts_together() -> None:
    tries: list[int] = []

    @hf.activity(schedule_to_close=0.2, retry=hf.Retry(attempts=None, initial=0.05, backoff=1, jitter=False))
    async def hopeless() -> None:
        tries.append(1)
        raise ConnectionError("no")

    cause, states, _ = outcome_of(hopeless)
    assert isinstance(cause, ConnectionError)
    assert 2 <= len(tries) <= 5
    assert states == [AttemptState.FAILED] * len(tries)


def test_A10_at_most_once_fails_with_worker_lost(tmp_path: Path) -> None:
    started = asyncio.Event()

    @hf.activity(rerun_after_loss=False)
    async def charge() -> None:
        started.set()
        await asyncio.sleep(60)

    async def scenario() -> None:
        flow = calling(charge)
        path = tmp_path / "shop.db"
        async with engine_of(path, charge, flow) as engine:
            await engine.start(flow, id="it")
            await started.wait()
        async with engine_of(path, charge, flow) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.get("it").result(timeout=10)
            assert isinstance(caught.value.cause, hf.WorkerLost)
        check_tables(path)

    together(scenario())


@pytest.mark.parametrize("cache_size", [100, 0])
def test_D5_an_activity_nobody_waits_for_any_more_is_cancelled_at_once(tmp_path: Path, cache_size: int) -> None:
    seen: list[str] = []

    @hf.activity
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @hf.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.05):
                await slow()
        except TimeoutError:
            return "timed out"
        return "no"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, slow, flow, cache_size=cache_size) as engine:
            assert await engine.run(flow, id="it") == "timed out"
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'CANCELLED'"))
            check_tables(path)

    together(scenario(), 5)
    assert seen == ["cancelled"]


def test_D5_it_is_cancelled_while_its_workflow_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()

        @hf.activity
        async def slow() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.set()

        @hf.activity
        async def notices() -> str:
            await stopped.wait()
            return "stopped"

        @hf.workflow
        async def flow() -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(slow(), 0.02)
            return await notices()

        path = tmp_path / "shop.db"
        async with engine_of(path, slow, notices, flow) as engine:
            assert await engine.run(flow, id="it") == "stopped"
        check_tables(path)

    together(scenario(), 5)


@pytest.mark.parametrize("slots", [1, 3])
def test_invariant_17_never_more_bodies_run_than_there_are_slots(tmp_path: Path, slots: int) -> None:
    running = 0
    highest = 0

    @hf.activity
    async def counted() -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0.002)
        running -= 1

    @hf.workflow
    async def flow() -> None:
        await asyncio.gather(*(counted() for _ in range(5)))
        await counted()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", counted, flow, max_activities=slots) as engine:
            await asyncio.gather(*(engine.run(flow, id=f"i{number}") for number in range(4)))

    together(scenario())
    assert highest == slots


def test_a_body_that_refuses_to_be_cancelled_changes_nothing(tmp_path: Path) -> None:
    @hf.activity
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "too late"
        return "no"

    @hf.workflow
    async def flow() -> str:
        try:
            await asyncio.wait_for(stubborn(), 0.02)
        except TimeoutError:
            await asyncio.sleep(0.05)
        return "timed out"

    assert finish(flow, stubborn, store=tmp_path / "shop.db") == "timed out"
    check_tables(tmp_path / "shop.db")


def test_a_slot_that_becomes_free_is_taken_at_once_by_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry that became due while no slot was free is not left to the next look."""
    may_end = asyncio.Event()

    @hf.activity(retry=hf.Retry(attempts=2, initial=0.2, jitter=False))
    async def flaky() -> int:
        if hf.activity_info().attempt == 1:
            raise ConnectionError("try again")
        return 2

    @hf.activity
    async def holds() -> int:
        await may_end.wait()
        return 1

    @hf.workflow
    async def keeps() -> int:
        return await holds()

    async def scenario() -> None:
        tries = calling(flaky)
        async with engine_of(":memory:", tries, keeps, flaky, holds, max_activities=1) as engine:
            worker = worker_of(engine)
            trying = await engine.start(tries, id="tries")
            second = "SELECT available_at_ms FROM attempts WHERE attempt = 2 AND state = 'READY'"
            await until(lambda: rows(path_of(engine), second))
            keeping = await engine.start(keeps, id="keeps")
            ((due_at_ms,),) = rows(path_of(engine), second)
            await until(lambda: claimer_of(worker).polled_at_ms >= due_at_ms)
            await committer_of(worker).drain()
            await until(lambda: not committer_of(worker).is_writing)  # it has claimed what there is to claim, and rests
            may_end.set()
            assert await keeping.result(timeout=5) == 1
            assert await trying.result(timeout=5) == 2

    monkeypatch.setattr("holdfast.runtime.duties.maintenance.POLL_SECONDS", 3_600.0)
    together(scenario())
