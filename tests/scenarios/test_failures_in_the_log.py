"""What failed is in the log, once, with its cause, and with attributes that tools can search for."""

import asyncio
import contextlib
import logging
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import SleepingMachine, engine_of, rows, together, until
from tests.support.inside import (
    attempts_of,
    free_slots,
    key_of,
    maintain,
    maintenance_of,
    notices_expired_lease,
    slot_count,
    worker_of,
)

import holdfast as hf
from holdfast.core.leases import MAX_LOST_OWNERS, TOOK_DOWN_ITS_OWNERS
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.instances import Block
from holdfast.storage.members.member import Member


@hf.activity(retry=hf.Retry(attempts=2, initial=0.01, jitter=False))
async def declines() -> int:
    raise ValueError("no money")


@hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=1))
async def hangs() -> int:
    await asyncio.sleep(3600)
    return 0


@hf.activity
async def answers() -> int:
    return 1


@hf.workflow
async def pays() -> int:
    return await declines()


@hf.workflow
async def waits() -> int:
    return await hangs()


@hf.workflow
async def sleeps() -> None:
    await asyncio.sleep(3600)


@hf.workflow
async def spins() -> int:
    while True:
        pass


@hf.workflow
async def works() -> int:
    return await answers()


@pytest.fixture(autouse=True)
def _levels(caplog: pytest.LogCaptureFixture) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    with caplog.at_level(logging.INFO, "holdfast"):
        yield


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Of the runtime. A server for tests, which is not safe, is warned of by its store."""
    return [record for record in caplog.records if "holdfast/storage" not in record.pathname]


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in records(caplog)]


async def nothing(*_: object) -> bool:
    """A janitor that does not do its duties."""
    return False


def run(workflow: hf.Workflow[..., Any], error: type[Exception], path: Path, **options: Any) -> None:
    deadline = options.pop("deadline", None)

    async def scenario() -> None:
        known = (pays, waits, sleeps, spins, works, declines, hangs, answers)
        async with engine_of(path, *known, **options) as engine:
            handle = await engine.start(workflow, id="it", deadline=deadline)
            with pytest.raises(error):
                await handle.result(timeout=20)

    together(scenario())


def test_G13_a_failed_attempt_is_one_warning_and_a_failed_instance_one_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(pays, hf.WorkflowFailed, tmp_path / "shop.db")
    first, second, third, last = records(caplog)
    of = "of activity declines of instance it failed: ValueError: no money"
    assert (first.levelname, first.getMessage()) == ("WARNING", f"attempt 1 {of}; attempt 2 begins in 0.01 s")
    assert (second.levelname, second.getMessage()) == ("WARNING", f"attempt 2 {of}; there is no further attempt")
    assert (third.levelname, third.getMessage()) == ("ERROR", "instance it failed: ValueError: no money")
    assert last.levelname == "INFO"
    found = {name: value for name, value in vars(second).items() if name.startswith("holdfast_")}
    worker = found.pop("holdfast_worker")
    assert found == {
        "holdfast_instance": "it",
        "holdfast_workflow": "pays",
        "holdfast_execution": 1,
        "holdfast_activity": "declines",
        "holdfast_attempt": 2,
        "holdfast_failed": "attempt",
    }
    assert worker == vars(third)["holdfast_worker"] == vars(last)["holdfast_worker"]
    assert (vars(third)["holdfast_instance"], vars(third)["holdfast_failed"]) == ("it", "instance")


def test_A5_an_attempt_that_timed_out_is_logged_as_a_failed_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(waits, hf.WorkflowFailed, tmp_path / "shop.db")
    warnings = [message for level, message in lines(caplog) if level == "WARNING"]
    assert len(warnings) == 1
    assert "attempt 1 of activity hangs of instance it failed: ActivityTimedOut" in warnings[0]


def test_A5_an_attempt_that_timed_out_is_logged_once_though_its_body_ends_after_its_worker_lost_its_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.02)
    machine = SleepingMachine()

    async def scenario() -> None:
        may_end, has_ended = asyncio.Event(), asyncio.Event()

        @hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=1))
        async def swallows() -> int:
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()
            has_ended.set()
            return 0

        @hf.workflow
        async def tries() -> int:
            return await swallows()

        async with engine_of(tmp_path / "shop.db", swallows, tries, providers=machine, lease=30) as engine:
            worker = worker_of(engine)
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(tries, id="it")
            key = key_of(worker)
            machine.slept_ms = 60_000
            await until(lambda: key_of(worker) != key)
            may_end.set()
            await has_ended.wait()
            await until(lambda: not attempts_of(worker).abandoned)

    together(scenario())
    failed = [message for _, message in lines(caplog) if "attempt 1 of activity swallows" in message]
    assert len(failed) == 1
    assert "ActivityTimedOut" in failed[0]


def test_A5_an_attempt_that_timed_out_is_logged_once_though_its_body_ends_when_its_worker_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.02)
    asked: list[str] = []

    @hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=1))
    async def swallows() -> int:
        while len(asked) < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                asked.append("to stop")
        return 0

    @hf.workflow
    async def tries() -> int:
        return await swallows()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", swallows, tries) as engine:
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(tries, id="it")
            assert attempts_of(worker_of(engine)).abandoned
        await until(lambda: len(asked) == 2)

    together(scenario())
    assert len([message for _, message in lines(caplog) if "attempt 1 of activity swallows" in message]) == 1


def test_W7_a_late_result_of_a_worker_that_lost_its_lease_is_not_logged_as_a_time_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt was lost with the lease, and another one runs: there is no time-out to record."""
    machine = SleepingMachine()

    async def scenario() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()

        @hf.activity(start_to_close=0.5)
        async def swallows() -> int:
            attempt = hf.activity_info().attempt
            if attempt == 1:
                has_begun.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)
                await asyncio.sleep(0.6)
                has_ended.set()
            return attempt

        @hf.workflow
        async def tries() -> int:
            return await swallows()

        async with engine_of(tmp_path / "shop.db", swallows, tries, providers=machine, lease=30) as engine:
            handle = await engine.start(tries, id="it")
            await has_begun.wait()
            machine.slept_ms = 60_000
            assert notices_expired_lease(worker_of(engine))
            assert await handle.result(timeout=10) == 2
            await has_ended.wait()
            worker = worker_of(engine)
            await until(lambda: not attempts_of(worker).running)

    together(scenario())
    assert not [message for _, message in lines(caplog) if "activity swallows" in message]


def test_A6_a_body_whose_heartbeat_is_stale_does_not_log_the_failure_of_its_attempt_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has ended the attempt, and has logged that."""
    path, learned = tmp_path / "shop.db", list[str]()

    async def scenario() -> None:
        has_begun, may_beat = asyncio.Event(), asyncio.Event()

        @hf.activity(heartbeat=0.05, retry=hf.Retry(attempts=1))
        async def is_silent() -> int:
            has_begun.set()
            await may_beat.wait()
            hf.heartbeat()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                learned.append("that it should stop")
                raise ValueError("too late") from None
            return 0

        @hf.workflow
        async def listens() -> int:
            return await is_silent()

        async with engine_of(path, is_silent, listens) as engine, engine_of(path, listens) as other:
            worker, judge = worker_of(engine), worker_of(other)
            monkeypatch.setattr(maintenance_of(worker), "round", nothing)
            handle = await engine.start(listens, id="it")
            await has_begun.wait()
            await until(
                lambda: rows(path, "SELECT 1 FROM attempts WHERE expires_at_ms <= ?", other._session.store.now_ms())
            )
            await maintain(judge)
            assert attempts_of(worker).running, "its worker has not looked yet"
            may_beat.set()
            await until(lambda: learned and not attempts_of(worker).running)
            with pytest.raises(hf.WorkflowFailed):
                await handle.result(timeout=10)

    together(scenario())
    warnings = [message for level, message in lines(caplog) if level == "WARNING"]
    assert len(warnings) == 1
    assert "ActivityTimedOut" in warnings[0]


def test_A5_an_abandoned_body_whose_attempt_was_ended_does_not_log_its_failure_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.02)
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        may_end = asyncio.Event()

        @hf.activity(heartbeat=0.2, retry=hf.Retry(attempts=1))
        async def swallows() -> int:
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()
            raise ValueError("too late")

        @hf.workflow
        async def races() -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(swallows(), 0.01)
            return "gave up"

        async with engine_of(path, swallows, races) as engine:
            assert await engine.run(races, id="it") == "gave up"
            worker = worker_of(engine)
            await until(lambda: attempts_of(worker).abandoned)
            await until(lambda: "ActivityTimedOut" in caplog.text)
            may_end.set()
            await until(lambda: not attempts_of(worker).abandoned)

    together(scenario())
    failed = [message for _, message in lines(caplog) if "attempt 1 of activity swallows" in message]
    assert len(failed) == 1


def test_A5_the_record_of_an_attempt_that_the_janitor_ended_has_its_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.activity(heartbeat=0.05, retry=hf.Retry(attempts=1))
    async def is_silent() -> int:
        await asyncio.sleep(3600)
        return 0

    @hf.workflow
    async def listens() -> int:
        return await is_silent()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", is_silent, listens) as engine:
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(listens, id="it")

    together(scenario())
    [warning] = [record for record in records(caplog) if record.levelname == "WARNING"]
    assert warning.getMessage().startswith("attempt 1 of activity is_silent of instance it failed: ActivityTimedOut")
    found = {name: value for name, value in vars(warning).items() if name.startswith("holdfast_")}
    assert found.pop("holdfast_worker")
    assert found == {
        "holdfast_instance": "it",
        "holdfast_workflow": "listens",
        "holdfast_execution": 1,
        "holdfast_activity": "is_silent",
        "holdfast_attempt": 1,
        "holdfast_failed": "attempt",
    }


def test_A9_an_instance_whose_deadline_passed_is_one_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(sleeps, hf.WorkflowFailed, tmp_path / "shop.db", deadline=0.05)
    errors = [message for level, message in lines(caplog) if level == "ERROR"]
    assert len(errors) == 1
    assert "instance it failed: " in errors[0]


def test_G12_a_blocked_instance_is_one_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(spins, hf.WorkflowBlocked, tmp_path / "shop.db", turn_limit_ms=50)
    errors = [record for record in records(caplog) if record.levelno >= logging.ERROR]
    assert [record.getMessage().partition(": ")[0] for record in errors] == ["instance it is blocked"]
    assert vars(errors[0])["holdfast_workflow"] == "spins"


@pytest.mark.parametrize("is_reply_lost", [False, True], ids=["", "the reply is lost"])
def test_G12_an_instance_that_took_down_its_owners_is_one_error_of_the_worker_that_blocks_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_reply_lost: bool
) -> None:
    path, lost = tmp_path / "shop.db", list[str]()

    def lose_reply(point: FaultPoint, members: Sequence[Member]) -> None:
        is_block = any(isinstance(member, Block) for member in members)
        if is_reply_lost and point is FaultPoint.AFTER_COMMIT and is_block and not lost:
            lost.append("the reply")
            raise hf.StoreError("the reply was lost")

    async def scenario() -> str:
        async with await hf.connect(path) as client:
            await client.start("sleeps", id="it")
        rows(path, "UPDATE instances SET losses = ?", MAX_LOST_OWNERS)
        async with engine_of(path, sleeps, fault_hook=lose_reply) as engine:
            with pytest.raises(hf.WorkflowBlocked):
                await engine.get("it").result(timeout=20)
            await until(lambda: "is blocked" in caplog.text)
            key = key_of(worker_of(engine))
        async with engine_of(path, sleeps):  # it does not try it again
            pass
        return key

    key = together(scenario())
    [error] = [record for record in records(caplog) if "instance it" in record.getMessage()]
    assert (error.levelname, error.getMessage()) == ("ERROR", f"instance it is blocked: {TOOK_DOWN_ITS_OWNERS}")
    assert vars(error)["holdfast_worker"] == key
    assert bool(lost) == is_reply_lost


def test_W10_a_clean_exit_is_one_line_and_does_not_read_like_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", works, answers) as engine:
            assert await engine.run(works, id="it") == 1

    together(scenario())
    [(level, message)] = lines(caplog)
    assert level == "INFO"
    assert "has stopped cleanly" in message


@contextlib.contextmanager
def raising_filter(*words: str) -> Generator[None]:
    """A log filter of the user that raises at records which have one of the words."""
    logger = logging.getLogger("holdfast")

    def raises(record: logging.LogRecord) -> bool:
        if any(word in record.getMessage() for word in words):
            raise AttributeError("request_id")
        return True

    logger.addFilter(raises)
    try:
        yield
    finally:
        logger.removeFilter(raises)


def test_A2_a_log_filter_that_raises_does_not_keep_a_failure_from_being_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # the filter's own errors
        async with engine_of(tmp_path / "shop.db", pays, declines) as engine:
            with pytest.raises(hf.WorkflowFailed, match="no money"):
                await engine.run(pays, id="it")

    with raising_filter("failed"):
        together(scenario())


@pytest.mark.parametrize("words", [["failed"], ["still runs"], ["failed", "still runs"]])
def test_A5_a_log_filter_that_raises_keeps_no_slot_of_an_abandoned_body(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.02)
    may_end = asyncio.Event()

    @hf.activity(start_to_close=0.05, retry=hf.Retry(attempts=1))
    async def swallows() -> int:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()
        return 0

    @hf.workflow
    async def tries() -> str:
        try:
            await swallows()
        except hf.ActivityTimedOut:
            return "timed out"
        return "?"

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # the filter's own errors
        async with engine_of(tmp_path / "shop.db", swallows, tries) as engine:
            worker = worker_of(engine)
            runner = attempts_of(worker)
            try:
                assert await (await engine.start(tries, id="it")).result(timeout=10) == "timed out"
                assert (free_slots(worker), len(runner.running), len(runner.abandoned)) == (slot_count(worker), 0, 1)
            finally:
                may_end.set()
            await until(lambda: not runner.abandoned)
            assert free_slots(worker) == slot_count(worker)

    with raising_filter(*words):
        together(scenario())
