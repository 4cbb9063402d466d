"""Bodies that must not begin, that should stop, and that do not stop (A5, A6, W3, W7, L15)."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling
from tests.scenarios.support import SleepingMachine, check_tables, engine_of, rows, together, until
from tests.support import inside

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.runtime.attempts.executors import DaemonThreads
from holdfast.runtime.attempts.running_attempt import RunningAttempt, StopReason
from holdfast.runtime.attempts.streams import LEASE_CHECK_SECONDS

ONCE = hf.Retry(attempts=1)
LEASE_SECONDS = 30
SLEPT_MS = 60_000


def states(path: Path, name: str) -> list[str]:
    return [
        state for (state,) in rows(path, "SELECT state FROM attempts WHERE name LIKE ? ORDER BY attempt", f"%{name}")
    ]


async def nothing(*_: object) -> bool:
    """A janitor that does not do its duties."""
    return False


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.02)


# ------------------------------------------------------------ a lease that is over


begun: list[int] = []
"""The numbers of the attempts that began."""


def begin() -> int:
    begun.append(hf.activity_info().attempt)
    return begun[-1]


async def charge() -> int:
    return begin()


def charge_in_thread() -> int:
    return begin()


async def charges() -> AsyncIterator[int]:
    yield begin()


def charges_in_thread() -> Iterator[int]:
    yield begin()


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (charge, {}),
        (charge, {"start_to_close": 3_600}),
        (charge_in_thread, {}),
        (charges, {"resumable": True}),
        (charges_in_thread, {"resumable": True}),
    ],
    ids=["async", "with a time-out", "thread", "stream", "stream of a thread"],
)
def test_W7_no_body_begins_after_the_lease_of_its_worker_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Callable[[], Any], options: dict[str, Any]
) -> None:
    """The worker is stopped in one body while another one of the same turn has not begun."""
    begun.clear()
    machine = SleepingMachine()
    charging: Any = hf.activity(name="charge", **options)(body)
    is_thread = body in (charge_in_thread, charges_in_thread)

    @hf.activity
    async def is_stopped() -> None:
        if not is_thread:
            machine.slept_ms = SLEPT_MS

    async def the_charge() -> int:
        if options.get("resumable"):
            return sum([value async for value in charging()])
        value: int = await charging()
        return value

    @hf.workflow
    async def pay() -> int:
        _, attempt = await asyncio.gather(is_stopped(), the_charge())
        return attempt

    run_in_thread = DaemonThreads.run

    def stopped_on_the_way(threads: DaemonThreads, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """The worker is stopped between handing a body to a thread and its beginning."""

        def later() -> Any:
            machine.slept_ms = SLEPT_MS
            return work()

        return run_in_thread(threads, later)

    monkeypatch.setattr(DaemonThreads, "run", stopped_on_the_way)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, is_stopped, charging, pay, providers=machine, lease=LEASE_SECONDS) as engine:
            assert await engine.run(pay, id="it") == 2
        assert states(path, "charge") == [AttemptState.TIMED_OUT, AttemptState.COMPLETED]
        check_tables(path)

    together(scenario())
    assert begun == [2]


@pytest.mark.parametrize("is_thread", [False, True], ids=["async", "thread"])
def test_L15_a_generator_delivers_nothing_and_goes_no_further_once_the_lease_is_over(
    tmp_path: Path, is_thread: bool
) -> None:
    machine, steps = SleepingMachine(), list[str]()

    def step(number: int) -> int:
        attempt = hf.activity_info().attempt
        steps.append(f"{attempt}.{number}")
        if (attempt, number) == (1, 4):
            time.sleep(2 * LEASE_CHECK_SECONDS)
            machine.slept_ms = SLEPT_MS
        return number

    @hf.activity(name="counts", resumable=True)
    async def counts() -> AsyncIterator[int]:
        for number in range(hf.activity_info().delivered, 6):
            yield step(number)
            if number == 2:
                await asyncio.sleep(0.01)  # these values are on their way when the next ones come

    @hf.activity(name="counts", resumable=True)
    def counts_in_thread() -> Iterator[int]:
        for number in range(hf.activity_info().delivered, 6):
            yield step(number)

    body: Any = counts_in_thread if is_thread else counts

    @hf.workflow
    async def collect() -> list[int]:
        return [number async for number in body()]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, body, collect, providers=machine, lease=LEASE_SECONDS) as engine:
            assert await engine.run(collect, id="it") == [0, 1, 2, 3, 4, 5]
        check_tables(path)
        assert audit(path) == []

    together(scenario())
    assert steps[4] == "1.4"
    assert "1.5" not in steps, "the first attempt goes no further"
    assert "2.4" in steps, "the value that came too late was not delivered"


def test_W7_a_heartbeat_of_a_thread_says_that_the_lease_is_over_while_the_event_loop_is_blocked(tmp_path: Path) -> None:
    machine, seen = SleepingMachine(), list[object]()
    is_blocked, may_go_on = threading.Event(), threading.Event()

    @hf.activity
    async def blocks() -> None:
        is_blocked.set()
        may_go_on.wait(10)

    @hf.activity
    def crunch() -> int:
        attempt = hf.activity_info().attempt
        if attempt == 1:
            is_blocked.wait(10)
            try:
                hf.heartbeat()
                seen.append(hf.activity_info().is_cancelled)
                machine.slept_ms = SLEPT_MS
                seen.append(hf.activity_info().is_cancelled)
                hf.heartbeat()
            except hf.Cancelled as cancelled:
                seen.append(str(cancelled))
                raise
            finally:
                may_go_on.set()
        return attempt

    @hf.workflow
    async def pay() -> int:
        attempt, _ = await asyncio.gather(crunch(), blocks())
        return attempt

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, blocks, crunch, pay, providers=machine, lease=LEASE_SECONDS) as engine:
            assert await engine.run(pay, id="it") == 2
        check_tables(path)

    together(scenario())
    reason = "is given up by its worker, which leaves or has lost its lease"
    assert seen == [False, True, f"attempt 1 of crunch of instance it {reason}"]


# ------------------------------------------------------------ ended by another worker


@pytest.mark.parametrize("is_thread", [False, True], ids=["async", "thread"])
def test_W3_a_body_whose_attempt_another_worker_timed_out_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_thread: bool
) -> None:
    learned: list[str] = []
    begun = threading.Event()

    @hf.activity(name="hang", heartbeat=0.05, retry=ONCE)
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            learned.append("cancelled")
            raise

    @hf.activity(name="hang", heartbeat=0.05, retry=ONCE)
    def hang_in_thread() -> None:
        begun.set()
        while not hf.activity_info().is_cancelled:
            time.sleep(0.005)
        try:
            hf.heartbeat()
        except hf.Cancelled as cancelled:
            learned.append("cancelled" if "was ended by another worker" in str(cancelled) else str(cancelled))
            raise

    async def scenario() -> None:
        path, body = tmp_path / "shop.db", hang_in_thread if is_thread else hang
        flow = calling(body)
        async with engine_of(path, body, flow) as engine, engine_of(path, flow) as other:
            worker, judge = inside.worker_of(engine), inside.worker_of(other)
            monkeypatch.setattr(inside.maintenance_of(worker), "round", nothing)
            handle = await engine.start(flow, id="it")
            await until(begun.is_set)
            await inside.reconciler_of(worker).reconcile()
            assert not learned, "it is still RUNNING in the name of its worker"
            await until(
                lambda: engine._session.store.now_ms() > rows(path, "SELECT max(expires_at_ms) FROM attempts")[0][0]
            )
            await inside.maintain(judge)
            assert states(path, "hang") == [AttemptState.TIMED_OUT]
            await inside.reconciler_of(worker).reconcile()
            await until(lambda: learned)
            assert learned == ["cancelled"]
            await until(lambda: inside.free_slots(worker) == inside.slot_count(worker))
            with pytest.raises(hf.WorkflowFailed) as caught:
                await handle.result(timeout=10)
            assert isinstance(caught.value.cause, hf.ActivityTimedOut)
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_W3_a_generator_whose_attempt_another_worker_timed_out_learns_that_by_its_next_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    ends: list[object] = []

    @hf.activity(heartbeat=0.05, retry=ONCE)
    def counts() -> Iterator[int]:
        begun.set()
        may_go_on.wait(10)
        while True:
            yield 1

    @hf.workflow
    async def collect() -> str:
        with contextlib.suppress(hf.ActivityTimedOut):
            async for _ in counts():
                pass
        return await hf.event("end", str)  # the end of the instance would cancel the body

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counts, collect) as engine, engine_of(path, collect) as other:
            worker, judge = inside.worker_of(engine), inside.worker_of(other)
            monkeypatch.setattr(inside.maintenance_of(worker), "round", nothing)
            monkeypatch.setattr(inside.reconciler_of(worker), "reconcile", nothing)
            monkeypatch.setattr(inside.turns_of(worker), "attempt_ended", ends.append)
            handle = await engine.start(collect, id="it")
            await until(begun.is_set)
            [running] = inside.attempts_of(worker).running.values()
            await until(
                lambda: engine._session.store.now_ms() > rows(path, "SELECT max(expires_at_ms) FROM attempts")[0][0]
            )
            await inside.maintain(judge)
            assert states(path, "counts") == [AttemptState.TIMED_OUT]
            may_go_on.set()
            await until(lambda: inside.free_slots(worker) == inside.slot_count(worker))
            assert running.stop_reason is StopReason.NOT_HELD
            await handle.raise_event("end", "timed out")
            assert await handle.result(timeout=10) == "timed out"
        check_tables(path)
        assert audit(path) == []

    together(scenario())
    assert ends == [], "its end is recorded already"


def test_A6_the_beats_of_a_thread_are_one_callback_while_the_event_loop_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[object] = []
    is_blocked, may_go_on = threading.Event(), threading.Event()
    send = RunningAttempt._send_heartbeat

    def counted(running: RunningAttempt) -> None:
        posted.append(running)
        send(running)

    monkeypatch.setattr(RunningAttempt, "_send_heartbeat", counted)

    @hf.activity
    async def blocks() -> None:
        is_blocked.set()
        may_go_on.wait(10)

    @hf.activity
    def crunch() -> None:
        is_blocked.wait(10)
        for number in range(1_000):
            hf.heartbeat(number)
        hf.heartbeat()
        may_go_on.set()

    @hf.workflow
    async def work() -> None:
        await asyncio.gather(crunch(), blocks())

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, blocks, crunch, work) as engine:
            await engine.run(work, id="it")
            assert rows(path, "SELECT details FROM attempts WHERE name = 'crunch'") == [(b"999",)]

    together(scenario())
    assert len(posted) == 1


# ------------------------------------------------------------ cancelled


def test_A6_a_thread_learns_by_its_heartbeat_that_it_was_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row is CANCELLED_RUNNING, and its slot is taken, until it has ended."""
    caplog.set_level(logging.WARNING, logger="holdfast")
    learned, may_end = threading.Event(), threading.Event()
    seen: list[bool] = []

    @hf.activity
    def crunch() -> None:
        seen.append(hf.activity_info().is_cancelled)
        try:
            while True:
                try:
                    hf.heartbeat()
                except Exception:  # noqa: BLE001 - as careless code does: this must not catch it
                    seen.append(False)
                time.sleep(0.001)
        except hf.Cancelled:
            seen.append(hf.activity_info().is_cancelled)
            learned.set()
            may_end.wait(10)
            raise

    @hf.workflow
    async def race() -> str:
        try:
            await asyncio.wait_for(crunch(), 0.05)
        except TimeoutError:
            return "gave up"
        return "no"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, crunch, race, max_activities=1) as engine:
            assert await engine.run(race, id="it") == "gave up"
            await until(learned.is_set)
            worker = inside.worker_of(engine)
            await inside.reconciler_of(worker).reconcile()
            await inside.reconciler_of(worker).reconcile()
            assert states(path, "crunch") == [AttemptState.CANCELLED_RUNNING]
            assert (inside.free_slots(worker), len(inside.attempts_of(worker).running)) == (0, 1)
            may_end.set()
            await until(lambda: states(path, "crunch") == [AttemptState.CANCELLED])
            await until(lambda: inside.free_slots(worker) == 1)
            assert engine.abandoned_threads == 0
        check_tables(path)

    together(scenario())
    assert seen == [False, True]
    assert caplog.records == []


def test_A6_a_coroutine_may_beat_while_it_cleans_up_and_its_threads_learn_it_too(tmp_path: Path) -> None:
    seen: list[object] = []

    def helper() -> None:
        try:
            hf.heartbeat()
        except hf.Cancelled as cancelled:
            seen.append(str(cancelled))

    @hf.activity
    async def slow() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            hf.heartbeat("cleaning up")
            seen.append(hf.activity_info().is_cancelled)
            await asyncio.to_thread(helper)
            raise

    @hf.workflow
    async def race() -> None:
        try:
            await asyncio.wait_for(slow(), 0.02)
        except TimeoutError:
            return

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, slow, race) as engine:
            await engine.run(race, id="it")
            await until(lambda: states(path, "slow") == [AttemptState.CANCELLED])

    together(scenario())
    assert seen == [True, "attempt 1 of slow of instance it was cancelled"]


def test_A6_a_generator_in_a_thread_is_closed_at_its_next_value_when_it_was_cancelled(tmp_path: Path) -> None:
    closed = threading.Event()

    @hf.activity
    def counts() -> Iterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
                time.sleep(0.001)
        finally:
            closed.set()

    @hf.workflow
    async def first_two() -> list[int]:
        taken: list[int] = []
        async for number in counts():
            taken.append(number)
            if number == 1:
                break
        return taken

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counts, first_two) as engine:
            assert await engine.run(first_two, id="it") == [0, 1]
            await until(closed.is_set)
            await until(lambda: states(path, "counts") == [AttemptState.CANCELLED])
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_A6_a_thread_that_outlives_its_engine_is_stopped_by_its_next_heartbeat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast")
    ended, is_closed = threading.Event(), threading.Event()
    learned: list[str] = []

    @hf.activity(heartbeat=60)
    def work() -> None:
        hf.heartbeat(0)
        is_closed.wait(10)
        try:
            hf.heartbeat(1)
        except hf.Cancelled as cancelled:
            learned.append(str(cancelled))
        finally:
            ended.set()

    async def scenario() -> None:
        path, flow = tmp_path / "shop.db", calling(work)
        async with engine_of(path, work, flow) as engine:
            await engine.start(flow, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE details IS NOT NULL"))
        is_closed.set()
        await until(ended.is_set)

    together(scenario())
    assert learned == ["attempt 1 of work of instance it is given up by its worker, which leaves or has lost its lease"]
    assert caplog.records == []


# ------------------------------------------------------------ abandoned


@pytest.mark.usefixtures("short_grace")
def test_A5_a_coroutine_that_swallows_its_cancellation_is_abandoned_and_its_slot_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast")

    async def scenario() -> None:
        may_end = asyncio.Event()
        beats: list[str] = []

        @hf.activity
        async def stubborn() -> None:
            while not may_end.is_set():
                with contextlib.suppress(BaseException):  # the mistake that this test is about
                    await may_end.wait()
            try:
                hf.heartbeat()
            except hf.Cancelled as cancelled:
                beats.append(str(cancelled))

        @hf.activity
        async def quick() -> str:
            return "quick"

        @hf.workflow
        async def race() -> str:
            try:
                await asyncio.wait_for(stubborn(), 0.02)
            except TimeoutError:
                return await quick()
            return "no race"

        path = tmp_path / "shop.db"
        try:
            async with engine_of(path, stubborn, quick, race, max_activities=1, lease=1) as engine:
                assert await engine.run(race, id="it") == "quick"
                [warning] = [record.getMessage() for record in caplog.records]
                assert "attempt 1 of stubborn of instance it was asked to stop" in warning
                worker = inside.worker_of(engine)
                await inside.reconciler_of(worker).reconcile()
                await inside.reconciler_of(worker).reconcile()
                assert states(path, "stubborn") == [AttemptState.CANCELLED_RUNNING], "its body has not ended"
                await until(lambda: rows(path, "SELECT 1 FROM workers WHERE abandoned = 1"))
                assert [view.abandoned for view in await engine.workers()] == [1]
                may_end.set()
                await until(lambda: states(path, "stubborn") == [AttemptState.COMPLETED])
                await until(lambda: rows(path, "SELECT 1 FROM workers WHERE abandoned = 0"))
                await until(lambda: inside.free_slots(worker) == 1)
                assert beats == ["attempt 1 of stubborn of instance it was cancelled"]
        finally:
            may_end.set()  # or the loop of this test does not end
        check_tables(path)
        assert audit(path) == []

    together(scenario())


@pytest.mark.usefixtures("short_grace")
def test_A5_attempts_that_swallow_their_time_out_are_abandoned_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time-out is recorded without the janitor, and a worker that drains does not wait for abandoned bodies."""

    async def scenario() -> None:
        may_end = asyncio.Event()

        @hf.activity(start_to_close=0.02, retry=hf.Retry(attempts=3, initial=0))
        async def stubborn() -> None:
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()

        path, flow = tmp_path / "shop.db", calling(stubborn)
        try:
            async with (
                await hf.connect(path) as client,
                hf.Worker(client, workflows=[flow], activities=[stubborn], max_activities=1) as working,
            ):
                worker = inside.worker_of(client)
                monkeypatch.setattr(inside.maintenance_of(worker), "round", nothing)
                with pytest.raises(hf.WorkflowFailed) as caught:
                    await client.run(flow, id="it")
                assert isinstance(caught.value.cause, hf.ActivityTimedOut)
                assert states(path, "stubborn") == [AttemptState.TIMED_OUT] * 3
                assert (len(inside.attempts_of(worker).abandoned), working.running) == (3, 0)
                working.drain()
        finally:
            may_end.set()
        check_tables(path)
        assert audit(path) == []

    together(scenario())


# ------------------------------------------------------------ time-outs win


async def answers_its_cancellation() -> str:
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        return "too late"
    return "no"


async def fails_when_cancelled() -> str:
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        raise ValueError("too late") from None
    return "no"


async def blocks_the_loop() -> str:
    time.sleep(0.06)  # noqa: ASYNC251 - no timer can end it
    return "too late"


@pytest.mark.parametrize("option", ["start_to_close", "schedule_to_close"])
@pytest.mark.parametrize("body", [answers_its_cancellation, fails_when_cancelled, blocks_the_loop])
def test_A5_a_time_out_that_has_passed_wins_over_what_the_body_does_later(
    tmp_path: Path, option: str, body: Callable[[], Awaitable[str]]
) -> None:
    limit: dict[str, Any] = {option: 0.05}
    late = hf.activity(name="late", retry=ONCE, **limit)(body)

    async def scenario() -> None:
        path, flow = tmp_path / "shop.db", calling(late)
        async with engine_of(path, late, flow) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.run(flow, id="it")
            assert isinstance(caught.value.cause, hf.ActivityTimedOut)
            assert f"late did not answer in time: {option} is 0.05 s" in str(caught.value.cause)
        assert states(path, "late") == [AttemptState.TIMED_OUT]
        check_tables(path)

    together(scenario())


def test_A5_a_generator_that_goes_on_after_its_time_out_delivers_nothing_more(tmp_path: Path) -> None:
    @hf.activity(start_to_close=0.5, retry=ONCE)
    async def counts() -> AsyncIterator[int]:
        yield 0
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            yield 1

    @hf.workflow
    async def collect() -> list[int]:
        taken: list[int] = []
        try:
            async for number in counts():
                taken.append(number)
        except hf.ActivityTimedOut:
            return taken
        return [*taken, -1]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counts, collect) as engine:
            assert await engine.run(collect, id="it") == [0]
        check_tables(path)
        assert audit(path) == []

    together(scenario())
