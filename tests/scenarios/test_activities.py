"""Bodies of activities: how they run, fail, are tried again, time out and are cancelled (A, G13)."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, path_of, rows, together, until

import holdfast as hf
from holdfast.core.lifecycle import AttemptState

QUICK = hf.Retry(attempts=3, initial=0.01)
ONCE = hf.Retry(attempts=1)


class Unpicklable(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.code = 7


def calling(activity: hf.Activity[..., Any]) -> hf.Workflow[..., Any]:
    @hf.workflow
    async def flow() -> Any:
        return await activity()

    return flow


def outcome_of(activity: hf.Activity[..., Any], **options: Any) -> tuple[Any, list[AttemptState], list[str | None]]:
    """The result or the cause of the failure, and the states and failures of the attempts."""

    async def scenario() -> tuple[Any, list[AttemptState], list[str | None]]:
        flow = calling(activity)
        async with engine_of(":memory:", activity, flow, **options) as engine:
            handle = await engine.start(flow, id="it")
            try:
                result = await handle.result(timeout=20)
            except hf.WorkflowFailed as error:
                result = error.cause
            attempts = (await handle.describe()).attempts
            check_tables(path_of(engine))
            return result, [view.state for view in attempts], [view.failure for view in attempts]

    return together(scenario())


def test_an_async_body_runs_in_the_loop_and_a_plain_one_in_a_thread() -> None:
    @hf.activity
    async def in_loop() -> str:
        return threading.current_thread().name

    @hf.activity
    def in_thread() -> str:
        return threading.current_thread().name

    assert outcome_of(in_loop)[0] == threading.main_thread().name
    assert str(outcome_of(in_thread)[0]).startswith("holdfast-activity")


def test_G13_retry_is_decided_with_the_failure() -> None:
    """Each failure closes its attempt and opens the next in one commit, without a turn of the workflow."""
    keys: list[str] = []
    numbers: list[int] = []

    @hf.activity(retry=QUICK)
    async def flaky() -> str:
        keys.append(hf.idempotency_key())
        numbers.append(hf.activity_info().attempt)
        if len(keys) < 3:
            raise ConnectionError(f"try {len(keys)}")
        return "done"

    async def scenario() -> None:
        flow = calling(flaky)
        async with engine_of(":memory:", flaky, flow) as engine:
            assert await engine.run(flow, id="it") == "done"
            described = await engine.get("it").describe()
            assert [view.state for view in described.attempts] == [
                AttemptState.FAILED,
                AttemptState.FAILED,
                AttemptState.COMPLETED,
            ]
            assert [f"{view.ledger:015d}" for view in described.attempts][-1] == "888000001000001"
            assert described.attempts[0].failure == "ConnectionError: try 1"
            assert described.turn == 2
            assert [entry.kind for entry in await engine.get("it").history()].count("activity_failed") == 0
            check_tables(path_of(engine))

    together(scenario())
    assert numbers == [1, 2, 3]
    assert len(set(keys)) == 1


def test_G13_backoff_puts_the_attempts_apart() -> None:
    times: list[float] = []

    @hf.activity(retry=hf.Retry(attempts=3, initial=0.05, backoff=2, jitter=False))
    async def flaky() -> None:
        times.append(asyncio.get_running_loop().time())
        raise ConnectionError

    outcome_of(flaky)
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert gaps[0] >= 0.049
    assert gaps[1] >= 0.099


def test_all_attempts_exhausted_is_the_last_error() -> None:
    tries: list[int] = []

    @hf.activity(retry=QUICK)
    def hopeless() -> None:
        tries.append(1)
        raise OSError(28, "No space left on device")

    cause, states, _ = outcome_of(hopeless)
    assert isinstance(cause, OSError)
    assert cause.errno == 28
    assert states == [AttemptState.FAILED] * 3
    assert len(tries) == 3


def test_a_non_retryable_error_and_those_derived_from_it_end_it_at_once() -> None:
    @hf.activity(retry=hf.Retry(attempts=5, initial=0.01, non_retryable=(LookupError,)))
    async def wrong() -> None:
        raise KeyError("card")

    cause, states, _ = outcome_of(wrong)
    assert isinstance(cause, KeyError)
    assert states == [AttemptState.FAILED]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_sys_exit_in_a_body_fails_the_attempt_and_the_worker_lives(kind: str) -> None:
    @hf.activity(name="leave", retry=ONCE)
    async def leave() -> None:
        sys.exit(3)

    @hf.activity(name="leave", retry=ONCE)
    def leave_thread() -> None:
        sys.exit(3)

    cause, states, failures = outcome_of(leave if kind == "async" else leave_thread)
    assert isinstance(cause, hf.RemoteError)
    assert cause.type_name == "builtins.SystemExit"
    assert (states, failures) == ([AttemptState.FAILED], ["SystemExit: 3"])


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_stop_iteration_in_a_body_fails_the_attempt(kind: str) -> None:
    """Python cannot pass it through a future; without care the attempt would never end."""

    @hf.activity(name="empty", retry=ONCE)
    async def empty() -> int:
        return next(iter([]))

    @hf.activity(name="empty", retry=ONCE)
    def empty_thread() -> int:
        return next(iter([]))

    cause, states, _ = outcome_of(empty if kind == "async" else empty_thread)
    assert isinstance(cause, RuntimeError)
    assert states == [AttemptState.FAILED]


def test_an_unserialisable_result_fails_the_attempt_and_names_the_path() -> None:
    @hf.activity(retry=ONCE)
    async def odd() -> dict[str, Any]:
        return {"fine": 1, "odd": [object()]}

    cause, states, _ = outcome_of(odd)
    assert isinstance(cause, hf.PayloadError)
    assert "odd" in str(cause)
    assert states == [AttemptState.FAILED]


def test_an_error_with_state_that_no_json_holds_keeps_what_can_be_kept() -> None:
    @hf.activity(retry=ONCE)
    async def fails() -> None:
        raise Unpicklable("locked")

    cause, _, failures = outcome_of(fails)
    assert isinstance(cause, Unpicklable)
    assert (str(cause), cause.code) == ("locked", 7)
    assert not hasattr(cause, "lock")
    assert failures == ["Unpicklable: locked"]


def test_a_result_of_the_wrong_type_fails_the_attempt() -> None:
    @hf.activity(retry=ONCE)
    async def lies() -> int:
        return "seven"  # type: ignore[return-value]  # wrong on purpose

    cause, states, _ = outcome_of(lies)
    assert isinstance(cause, hf.PayloadError)
    assert states == [AttemptState.FAILED]


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
    assert "0.05" in str(failures[0])
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


def test_A5_endless_threads_are_abandoned_counted_and_take_no_slot(tmp_path: Path) -> None:
    release = threading.Event()

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
            assert engine.worker is not None
            assert engine.worker.runner.abandoned_threads == 2
            assert engine.worker.runner.free == 1
            release.set()

    together(scenario())


def test_A6_a_silent_body_is_timed_out_by_the_janitor_and_told_to_stop() -> None:
    told = asyncio.Event()

    @hf.activity(heartbeat=0.05, retry=hf.Retry(attempts=2, initial=0))
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
        async with engine_of(":memory:", silent, flow) as engine:
            assert await engine.run(flow, id="it") == "second"
            await told.wait()
            attempts = (await engine.get("it").describe()).attempts
            assert [view.state for view in attempts] == [AttemptState.TIMED_OUT, AttemptState.COMPLETED]
            assert "beyond its deadline" in str(attempts[0].failure)
            assert engine.worker is not None
            worker = engine.worker
            await until(lambda: worker.runner.free == worker.runner.slots)
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

    cause, states, _ = outcome_of(waits)
    assert isinstance(cause, hf.ActivityTimedOut)
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


def test_activity_info_names_everything(tmp_path: Path) -> None:
    @hf.activity(name="who", queue="special")
    async def who() -> list[Any]:
        info = hf.activity_info()
        return [info.instance_id, info.workflow, info.activity, info.number, info.attempt, info.queue, info.details]

    @hf.workflow(name="asks")
    async def asks() -> list[Any]:
        await who()
        return await who()

    found = finish(asks, who, store=tmp_path / "shop.db", queues=["special"])
    assert found == ["it", "asks", "who", 1, 1, "special", None]


def test_outside_of_its_place_every_helper_says_so() -> None:
    for outside in (hf.activity_info, hf.idempotency_key, hf.heartbeat):
        with pytest.raises(hf.UsageError, match="body of an activity"):
            outside()
    for inside in (hf.now, hf.random, hf.uuid4, hf.info, lambda: hf.side_effect(lambda: 1)):
        with pytest.raises(hf.NotInWorkflow):
            inside()


def test_an_activity_awaited_outside_of_a_workflow_simply_runs() -> None:
    @hf.activity
    async def double(number: int) -> int:
        return 2 * number

    @hf.activity
    def triple(number: int) -> int:
        return 3 * number

    async def scenario() -> list[int]:
        return [await double(2), await triple(2), await double.fn(4), triple.fn(4)]

    assert together(scenario()) == [4, 6, 8, 12]


def test_an_activity_that_is_not_registered_anywhere_waits_visibly(tmp_path: Path) -> None:
    @hf.activity
    async def elsewhere() -> str:
        return "here"

    async def scenario() -> None:
        flow = calling(elsewhere)
        path = tmp_path / "shop.db"
        async with engine_of(path, flow) as engine:
            handle = await engine.start(flow, id="it")
            described = await handle.describe()
            assert described.waiting_for == ["activity elsewhere"]
            assert described.attempts[0].state is AttemptState.READY
            async with engine_of(path, elsewhere):
                assert await handle.result(timeout=10) == "here"

    together(scenario())
