"""Every background task and thread is ended while the engine works: the end is logged, and the work goes on."""

import asyncio
import ctypes
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import check_tables, engine_of, together, until
from tests.support.inside import claimer_of, committer_of, free_slots, key_of, live_instances, lose_lease, worker_of

import holdfast as hf
from holdfast import background
from holdfast.background import BackgroundTask, Duty
from holdfast.runtime import run_factory
from holdfast.runtime.committer import Committer
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import DeleteQueries
from holdfast.storage.members.outcomes import Failed, Outcome
from holdfast.storage.sqlite import store as sqlite_store
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.write_lock import lock_waits
from holdfast.storage.wakeups import EVERYTHING, Wakeups

THREADS = (Duty.LEASE, Duty.WATCHDOG, Duty.LISTENER, Duty.LOCK_WAITS)
ELSEWHERE = (Duty.METRICS, Duty.TRACES)
"""Threads that no engine has; `tests/unit/cli/test_metrics_server.py` ends this one."""
TASKS = tuple(duty for duty in Duty if duty not in THREADS + ELSEWHERE)
ON_DEMAND = (Duty.NEW_KEY, Duty.EVENTS, Duty.CLAIMANTS)
"""Tasks that run when they are needed: in the course of the scenario, or because a test asks for it."""
STEPS = 3


class Killed(BaseException):
    """Nothing in the engine expects it."""


class Ending:
    """Ends the first run of a task: before its first step, or where it waits for the first time."""

    def __init__(self, error: type[BaseException], *, while_it_waits: bool) -> None:
        self._error = error
        self._while_it_waits = while_it_waits
        self.is_armed = True
        self.struck = 0

    def wrap(self, run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def ended() -> None:
            if not self._while_it_waits and (error := self.next_error()) is not None:
                raise error
            await _Throwing(run(), self)

        return ended

    def next_error(self) -> BaseException | None:
        if self.struck or not self.is_armed:
            return None
        self.struck += 1
        return self._error()


class _Throwing:
    """Awaits a coroutine, and throws an error into it where it first waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], ending: Ending) -> None:
        self._coroutine = coroutine
        self._ending = ending

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._coroutine.__await__()
        try:
            waits_for = steps.send(None)
            while True:
                error = self._ending.next_error()
                if error is not None:
                    waits_for = steps.throw(error)
                    continue
                try:
                    answer = yield waits_for
                except BaseException as thrown:  # noqa: BLE001 - for the coroutine
                    waits_for = steps.throw(thrown)
                else:
                    waits_for = steps.send(answer)
        except StopIteration:
            return


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.activity(external=True, queue="launched", start_to_close=60)
async def paint() -> None: ...


@hf.workflow
async def paints() -> None:
    await paint()


class Painter:
    """A launcher that notes the ids of its tasks."""

    def __init__(self) -> None:
        self.painted: list[str] = []

    async def launch(self, task: hf.LaunchTask) -> None:
        self.painted.append(task.workflow_exec_id)


@hf.workflow
async def order() -> int:
    total = 0

    @hf.on_query
    def so_far() -> int:
        return total

    for number in range(STEPS):
        await asyncio.sleep(0.01)
        total += await double(number)
    return total + await hf.event("go", int)


async def use_everything(path: Path, during: Callable[[hf.Engine], Coroutine[Any, Any, None]]) -> None:
    """A workflow beside an engine and a client without its code, both of which wait, watch, ask and send."""
    painter = Painter()
    known = (double, order, paint, paints)
    launchers = {"launched": painter}
    async with engine_of(path, *known, launchers=launchers, lease=2) as engine, await hf.connect(path) as client:
        handle = await engine.start(order, id="first")
        seen = asyncio.create_task(watch_until_closed(client, "first"))
        ended = asyncio.create_task(client.get("first").result(timeout=20))
        await during(engine)
        assert await client.get("first").query("so_far") >= 0
        await until(lambda: waits_for_event(engine, "go"))
        await handle.raise_event("go", 1)
        assert await handle.result(timeout=20) == 7
        assert await ended == 7
        assert (await seen).state == "COMPLETED"
        second = await client.start("order", id="second")
        await second.raise_event("go", 2)
        assert await second.result(timeout=20) == 8
        painting = await client.start("paints", id="third")
        await until(lambda: painter.painted)
        await painting.terminate()
    check_tables(path)


def waits_for_event(engine: hf.Engine, name: str) -> bool:
    """Whether an instance that is live in the engine would take the event along with its next turn."""
    return any(live.run.awaits_event(name) for live in live_instances(worker_of(engine)).values())


async def watch_until_closed(client: hf.Client, instance_id: str) -> hf.Change:
    changes = [change async for change in client.get(instance_id).watch()]
    return changes[-1]


def wait_as_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite, too, groups are written on the writer's thread, and every read waits."""
    read = SqliteStore._read

    async def waits(self: SqliteStore, statement: str, *bindings: Any) -> list[Any]:
        await asyncio.sleep(0)
        return await read(self, statement, *bindings)

    monkeypatch.setattr(sqlite_store, "SLOW_COMMIT_MS", -1.0)
    monkeypatch.setattr(SqliteStore, "_read", waits)


@pytest.mark.parametrize(
    ("error", "while_it_waits"),
    [(Killed, False), (asyncio.CancelledError, True)],
    ids=["fails-at-its-start", "is-cancelled-while-it-waits"],
)
@pytest.mark.parametrize("duty", TASKS)
def test_a_background_task_that_ends_is_logged_and_started_again(
    duty: Duty,
    error: type[BaseException],
    while_it_waits: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ending = Ending(error, while_it_waits=while_it_waits)
    ending.is_armed = duty is not Duty.COMMITTER  # a client whose own commit is interrupted receives a StoreError
    make = BackgroundTask.__init__

    def sabotaged(self: BackgroundTask, of: Duty, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        make(self, of, ending.wrap(run) if of is duty else run)

    monkeypatch.setattr(BackgroundTask, "__init__", sabotaged)
    monkeypatch.setattr(background, "RESTART_SECONDS", 0.01)
    wait_as_on_a_server(monkeypatch)

    async def during(engine: hf.Engine) -> None:
        ending.is_armed = True
        if duty is Duty.NEW_KEY:
            key = key_of(worker_of(engine))
            lose_lease(worker_of(engine))
            await until(lambda: key_of(worker_of(engine)) != key)
        if duty not in ON_DEMAND:
            await until(lambda: ending.struck)

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(use_everything(tmp_path / "shop.db", during))
    expected = f"the background task {duty} " + ("was cancelled" if error is asyncio.CancelledError else "failed")
    assert ending.struck
    assert any(expected in record.message for record in caplog.records)


@pytest.mark.parametrize("duty", THREADS)
def test_a_background_thread_that_fails_is_logged_and_started_again(
    duty: Duty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if duty is (Duty.LISTENER if are_files() else Duty.LOCK_WAITS):
        pytest.skip("it belongs to the other store")
    monkeypatch.setattr(background, "RESTART_SECONDS", 0.01)
    # Under a profile function, Python 3.11 enters no function while an exception is pending in a thread that sleeps.
    monkeypatch.setattr(run_factory, "STRICT_TURNS", 0)
    expected = f"the background thread {duty} failed"
    before = set(threading.enumerate() if duty is not Duty.LOCK_WAITS else [])  # of that there is one per process
    killed: set[threading.Thread] = set()  # a second error could reach a thread that is about to log the first

    async def during(engine: hf.Engine) -> None:
        number = 0
        if duty is Duty.LOCK_WAITS:
            lock_waits.begin(number, tmp_path / "lock")
        failed = False
        while not failed:  # a thread that sleeps takes the error when it next wakes: there has to be something to do
            kill_threads(duty, before | killed)
            killed.update(threads_of(duty, before))
            number += 1
            beside = await engine.start(order, id=f"beside-{number}")
            engine._session.wake_others(Wakeups(to_all=EVERYTHING))  # the listener sends it
            await beside.raise_event("go", 1)
            await beside.result(timeout=20)
            failed = any(expected in record.message for record in caplog.records)
        await until(lambda: threads_of(duty, before))
        if duty is Duty.LOCK_WAITS:
            lock_waits.end(0)

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(use_everything(tmp_path / "shop.db", during))


def threads_of(duty: Duty, before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == duty and thread not in before]


def kill_threads(duty: Duty, before: set[threading.Thread]) -> None:
    """Raise `Killed` in threads, at the next line of Python that they run."""
    for thread in threads_of(duty, before):
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Killed))


def test_a_claim_that_is_cancelled_while_it_waits_keeps_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", double, order, max_activities=5) as engine:
            worker = worker_of(engine)
            is_waiting = asyncio.Event()

            async def never(_: Member) -> Outcome:
                is_waiting.set()
                await asyncio.Event().wait()
                raise AssertionError

            with monkeypatch.context() as patch:
                patch.setattr(committer_of(worker), "commit", never)
                claim = asyncio.create_task(claimer_of(worker)._claim_attempts())
                await is_waiting.wait()
                assert free_slots(worker) == 0
                claim.cancel()
                await asyncio.wait([claim])
            assert free_slots(worker) == 5

    together(scenario())


def test_every_member_receives_its_outcome_when_the_announcement_of_its_group_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", double, order) as engine:

            def fail(*_: object) -> None:
                raise OSError("no descriptor is free")

            committer = Committer(engine._session)
            monkeypatch.setattr(engine._session.changes, "notify", fail)
            outcomes: list[Outcome] = []

            def breaks(outcome: Outcome) -> None:
                outcomes.append(outcome)
                raise Killed

            committer.submit(DeleteQueries(), breaks)
            committer.submit(DeleteQueries(), outcomes.append)
            await committer.drain()
            monkeypatch.undo()
            assert len(outcomes) == 2
            assert not any(isinstance(outcome, Failed) for outcome in outcomes)

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(scenario())
    assert any("a commit was not announced" in record.message for record in caplog.records)
