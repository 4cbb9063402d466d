"""Launchers: QUEUED is on disk before a program is launched, and the program reports by itself (C4, L2, W6, W10)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import SleepingMachine, check_tables, engine_of, rows, together, until
from tests.support import inside

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports
from holdfast.core.activity_events import ReportKind
from holdfast.errors import InvalidOption
from holdfast.runtime.attempts import launchers
from holdfast.testing.simulation.simulation import kill_engine

ENTERED = 899_000_000_000_000
CONCLUDED = 889_000_000_000_000
RERUN = 799_000_000_000_000
DONE = 888_000_001_000_001


@hf.activity(external=True, queue="gpu", start_to_close=3_600, retry=hf.Retry(attempts=3, initial=0.001))
async def train(model: str, epochs: int = 1) -> str: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="gpu", start_to_close=3_600, claim_timeout=0.3, max_claims=2)
async def train_soon(model: str) -> str: ...  # type: ignore[empty-body]


@hf.workflow
async def learn(model: str) -> str:
    return await train(model, epochs=2)


@hf.workflow
async def learn_many(count: int) -> list[str]:
    return list(await asyncio.gather(*(train(str(number)) for number in range(count))))


@hf.workflow
async def learn_soon(model: str) -> str:
    return await train_soon(model)


KNOWN: list[Any] = [train, train_soon, learn, learn_many, learn_soon]


class Calls:
    """A launcher that notes its tasks and calls a function for each."""

    def __init__(self, then: Callable[[hf.LaunchTask], Awaitable[None]] | None = None) -> None:
        self.tasks: list[hf.LaunchTask] = []
        self._then = then

    async def launch(self, task: hf.LaunchTask) -> None:
        self.tasks.append(task)
        if self._then is not None:
            await self._then(task)

    def has(self, count: int) -> bool:
        return len(self.tasks) >= count


def engine_with(path: Path, launcher: hf.Launcher, **options: Any) -> hf.Engine:
    return engine_of(path, *KNOWN, launchers={"gpu": launcher}, **options)


def stored(path: Path) -> list[tuple[str, int]]:
    return [(state, ledger) for state, ledger in rows(path, "SELECT state, ledger FROM attempts ORDER BY attempt")]


def owner_of(path: Path) -> str | None:
    [(owner,)] = rows(path, "SELECT owner FROM attempts ORDER BY attempt DESC LIMIT 1")
    return None if owner is None else str(owner)


async def report(engine: hf.Client, task: hf.LaunchTask, kind: ReportKind, **more: Any) -> tuple[str, str | None]:
    """What a program reports, and the answer that it reads."""
    fields: dict[str, Any] = {"claim": task.claim, **more}
    reports = ActivityReports(engine._calls)
    answer = await reports.answer(await reports.insert(task.activity_exec_id, kind, **fields), 10)
    return str(answer.state), answer.refusal


async def finish(engine: hf.Client, task: hf.LaunchTask) -> None:
    assert await report(engine, task, ReportKind.RUNNING) == ("APPLIED", None)
    assert await report(engine, task, ReportKind.COMPLETED, payload='"trained"') == ("APPLIED", None)


# ------------------------------------------------------------ one launch


def test_C14_an_attempt_is_queued_before_its_program_is_launched(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    seen: list[Any] = []

    async def look(task: hf.LaunchTask) -> None:
        seen.append(rows(path, "SELECT state, ledger, started_at_ms FROM attempts"))
        seen.append(rows(path, "SELECT exec_id, claim FROM offers"))
        assert task.environment == {
            "HOLDFAST_ACTIVITY_EXEC_ID": task.activity_exec_id,
            "HOLDFAST_ACTIVITY_NAME": "train",
            "HOLDFAST_WORKFLOW_EXEC_ID": "it",
            "HOLDFAST_WORKFLOW_NAME": "learn",
            "HOLDFAST_CLAIM": task.claim,
        }
        assert json.loads(task.input) == {"model": "bert", "epochs": 2}
        assert (task.queue, task.attempt) == ("gpu", 1)
        assert task.claim not in repr(task)

    async def scenario() -> None:
        calls = Calls(look)
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 1))
            [task] = calls.tasks
            assert seen == [[("QUEUED", ENTERED, None)], [(task.activity_exec_id, task.claim)]]
            assert owner_of(path) == inside.key_of(inside.worker_of(engine))
            state, refusal = await report(engine, task, ReportKind.RUNNING, claim="another")
            assert (state, "under another claim" in str(refusal)) == ("REFUSED", True)
            assert await report(engine, task, ReportKind.PREPARING) == ("APPLIED", None)
            assert owner_of(path) is None, "from PREPARING on it has no owner"
            await finish(engine, task)
            assert await handle.result() == "trained"
            assert stored(path) == [("COMPLETED", DONE)]
            check_tables(path)

    together(scenario())


def test_C14_a_launch_that_fails_is_failed_from_queued_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    caplog.set_level(logging.WARNING, "holdfast")

    async def scenario() -> None:
        calls = Calls()

        async def fail_once(task: hf.LaunchTask) -> None:
            if task.attempt == 1:
                raise ConnectionError("no machine is free")

        calls = Calls(fail_once)
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 2))
            first, second = calls.tasks
            assert first.activity_exec_id != second.activity_exec_id
            assert first.idempotency_key == second.idempotency_key
            assert first.claim != second.claim
            await finish(engine, second)
            assert await handle.result() == "trained"
            assert stored(path) == [("FAILED", ENTERED), ("COMPLETED", DONE)]
            assert [state for state, _ in [await report(engine, first, ReportKind.RUNNING)]] == ["REFUSED"]
            check_tables(path)
        assert "no machine is free" in caplog.text

    together(scenario())


@pytest.mark.parametrize("error", [OSError, asyncio.CancelledError], ids=["error", "cancels itself"])
def test_C4_the_last_launch_that_fails_is_the_failure_of_the_activity(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "shop.db"

    async def fail(task: hf.LaunchTask) -> None:
        raise error(f"no machine for {task.activity_name}")

    async def scenario() -> None:
        calls = Calls(fail)
        async with engine_with(path, calls) as engine:
            with pytest.raises(hf.WorkflowFailed, match="no machine for train"):
                await engine.run(learn, "bert", id="it")
            assert stored(path) == [("FAILED", ENTERED)] * 3
            assert not rows(path, "SELECT 1 FROM attempts WHERE owner IS NOT NULL AND closed_at_ms IS NULL")

    together(scenario())


def test_C4_a_launch_that_fails_after_its_program_reported_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async def start_and_fail(task: hf.LaunchTask) -> None:
            assert await report(engine, task, ReportKind.RUNNING) == ("APPLIED", None)
            raise ConnectionError("the answer of the machine was lost")

        calls = Calls(start_and_fail)
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 1))
            await until(lambda: stored(path) == [("RUNNING", CONCLUDED)])
            [task] = calls.tasks
            assert await report(engine, task, ReportKind.COMPLETED, payload='"trained"') == ("APPLIED", None)
            assert await handle.result() == "trained"
            assert len(calls.tasks) == 1

    together(scenario())


def test_A5_a_launched_program_that_never_reports_is_launched_again_under_a_new_id(tmp_path: Path) -> None:
    """After two entries there is no third one: the activity is a dead letter (L8)."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        calls = Calls()
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn_soon, "bert", id="it")
            await until(partial(calls.has, 2))
            assert stored(path) == [("QUEUED", RERUN)]
            first, second = calls.tasks
            assert first.activity_exec_id != second.activity_exec_id
            state, refusal = await report(engine, first, ReportKind.RUNNING)
            assert (state, "was released" in str(refusal)) == ("REFUSED", True)
            with pytest.raises(hf.WorkflowFailed) as failed:
                await handle.result()
            assert isinstance(failed.value.cause, hf.ClaimsExhausted)
            assert len(calls.tasks) == 2

    together(scenario())


def test_C4_launches_are_bounded_and_a_launcher_without_room_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.db"
    monkeypatch.setattr(launchers, "MOST_AT_ONCE", 3)
    room = launchers.Launches._room  # pyright: ignore[reportPrivateUsage]
    polls: list[int] = []

    def counted(self: launchers.Launches, queue: str) -> int:
        polls.append(room(self, queue))
        return polls[-1]

    monkeypatch.setattr(launchers.Launches, "_room", counted)

    async def scenario() -> None:
        running: list[int] = []
        most: list[int] = []
        go = asyncio.Event()

        async def hold(task: hf.LaunchTask) -> None:
            running.append(task.attempt)
            most.append(len(running))
            await go.wait()
            running.pop()

        calls = Calls(hold)
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn_many, 8, id="it")
            await until(partial(calls.has, 3))
            for _ in range(2):  # the second poll begins when the claim of the first is over
                polls.clear()
                inside.worker_of(engine).launches.poll()
                await until(lambda: polls)
            assert rows(path, "SELECT count(*) FROM attempts WHERE state = 'QUEUED'") == [(3,)]
            go.set()
            await until(partial(calls.has, 8))
            assert max(most) == 3
            for task in calls.tasks:
                await finish(engine, task)
            assert await handle.result() == ["trained"] * 8
            check_tables(path)

    together(scenario())


def test_C4_a_launcher_says_how_many_programs_it_can_start(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    class Small(Calls):
        room = 1

        async def launch(self, task: hf.LaunchTask) -> None:
            await super().launch(task)
            self.room -= 1

    async def scenario() -> None:
        small = Small()
        async with engine_with(path, small) as engine:
            handle = await engine.start(learn_many, 2, id="it")
            await until(partial(small.has, 1))
            assert rows(path, "SELECT state FROM attempts ORDER BY state") == [("QUEUED",), ("READY",)]
            small.room = 1
            inside.worker_of(engine).poll()
            await until(partial(small.has, 2))
            for task in small.tasks:
                await finish(engine, task)
            await handle.result()

    together(scenario())


def test_C4_only_registered_external_activities_of_the_queue_are_launched(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    @hf.activity(external=True, queue="other", start_to_close=60)
    async def elsewhere() -> str: ...  # type: ignore[empty-body]

    @hf.activity(queue="gpu")
    async def ordinary() -> str:
        return "here"

    @hf.workflow
    async def mixed() -> list[str]:
        return list(await asyncio.gather(elsewhere(), ordinary(), train("bert")))

    async def scenario() -> None:
        calls = Calls()
        async with engine_of(path, elsewhere, ordinary, mixed, launchers={"gpu": calls}) as engine:
            await engine.start(mixed, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'COMPLETED'"))
            async with engine_with(path, calls):
                await until(partial(calls.has, 1))
            states = dict(rows(path, "SELECT name, state FROM attempts"))
            assert states["elsewhere"] == "READY"
            assert [task.activity_name for task in calls.tasks] == ["train"]

    together(scenario())


# ------------------------------------------------------------ loss and stop of the worker


def test_W6_a_worker_lost_after_the_claim_releases_it_and_the_old_program_is_refused(tmp_path: Path) -> None:
    """Between the commit of QUEUED and the launch, or after the launch: the next worker cannot tell."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        first, second = Calls(), Calls()
        victim = engine_with(path, first)
        await victim.__aenter__()
        await victim.start(learn, "bert", id="it")
        await until(partial(first.has, 1))
        await kill_engine(victim)
        assert stored(path) == [("QUEUED", ENTERED)]
        async with engine_with(path, second) as heir:
            await inside.worker_of(heir).take_over(owner_of(path))  # type: ignore[arg-type]
            await until(partial(second.has, 1))
            assert stored(path) == [("QUEUED", RERUN)]
            [old], [new] = first.tasks, second.tasks
            assert old.activity_exec_id != new.activity_exec_id
            for kind in (ReportKind.RUNNING, ReportKind.COMPLETED, ReportKind.FAILED):
                assert (await report(heir, old, kind))[0] == "REFUSED"
            await finish(heir, new)
            assert await heir.get("it").result() == "trained"
            assert stored(path) == [("COMPLETED", DONE - 10**14)]
            check_tables(path)

    together(scenario())


def test_W6_a_program_that_has_reported_outlives_the_worker_that_launched_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        first, second = Calls(), Calls()
        async with engine_with(path, first) as victim:
            await victim.start(learn, "bert", id="it")
            await until(partial(first.has, 1))
            assert await report(victim, first.tasks[0], ReportKind.PREPARING) == ("APPLIED", None)
        assert [state for state, _ in stored(path)] == ["PREPARING"]
        async with engine_with(path, second) as heir:
            await finish(heir, first.tasks[0])
            assert await heir.get("it").result() == "trained"
            assert not second.tasks

    together(scenario())


def test_A5_a_lost_worker_leaves_a_claim_whose_program_has_reported_and_was_not_read(tmp_path: Path) -> None:
    """The report is in the table and no worker with the activity has handled it: it decides, not the loss."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        calls = Calls()
        victim = engine_with(path, calls)
        await victim.__aenter__()
        await victim.start(learn, "bert", id="it")
        await until(partial(calls.has, 1))
        await kill_engine(victim)
        [task] = calls.tasks

        @hf.workflow
        async def other() -> None: ...

        async with engine_of(path, other) as stranger:  # has neither the workflow nor the activity
            reports = ActivityReports(stranger._calls)
            await reports.insert(task.activity_exec_id, ReportKind.RUNNING, claim=task.claim)
            await inside.worker_of(stranger).take_over(owner_of(path))  # type: ignore[arg-type]
            assert stored(path) == [("QUEUED", ENTERED)]
        async with engine_with(path, Calls()) as heir:
            await until(lambda: stored(path) == [("RUNNING", CONCLUDED)])
            assert owner_of(path) is None
            assert await report(heir, task, ReportKind.COMPLETED, payload='"trained"') == ("APPLIED", None)
            assert await heir.get("it").result() == "trained"

    together(scenario())


def test_W3_a_launched_attempt_is_known_to_its_worker_until_its_program_reports(tmp_path: Path) -> None:
    """The reconciler releases rows that the worker does not know, and not this one."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        calls = Calls()
        async with engine_with(path, calls) as engine:
            handle = await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 1))
            worker = inside.worker_of(engine)
            for _ in range(4):
                await worker.reconciler.reconcile()
            assert stored(path) == [("QUEUED", ENTERED)]
            assert len(worker.launches.known()) == 1
            assert await report(engine, calls.tasks[0], ReportKind.RUNNING) == ("APPLIED", None)
            await worker.reconciler.reconcile()
            assert not worker.launches.known()
            assert await report(engine, calls.tasks[0], ReportKind.COMPLETED, payload='"x"') == ("APPLIED", None)
            assert await handle.result() == "x"

    together(scenario())


@pytest.mark.parametrize(("how", "reports"), [("drain", True), ("drain", False), ("stop", False)])
def test_W10_a_worker_that_leaves_waits_for_its_launches_or_cancels_them(
    tmp_path: Path, how: str, reports: bool
) -> None:
    path = tmp_path / "shop.db"
    ended: list[str] = []

    async def scenario() -> None:
        go = asyncio.Event()

        async def hold(task: hf.LaunchTask) -> None:
            try:
                await go.wait()
                ended.append(task.activity_name)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        calls = Calls(hold)
        async with engine_with(path, calls) as engine:
            await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 1))
            if how == "drain":
                draining = asyncio.ensure_future(inside.worker_of(engine).drain())
                await until(lambda: inside.worker_of(engine).launches._is_closed)  # pyright: ignore[reportPrivateUsage]
                go.set()
                await until(lambda: ended)
                assert not draining.done(), "it waits for the first report of the program"
                if reports:
                    assert await report(engine, calls.tasks[0], ReportKind.PREPARING) == ("APPLIED", None)
                    await draining
                else:
                    draining.cancel()
        assert ended == (["train"] if how == "drain" else ["cancelled"])
        expected = "PREPARING" if reports else "READY"
        assert stored(path) == [(expected, ENTERED)], "an attempt whose program has not reported is released"
        assert rows(path, "SELECT count(*) FROM offers WHERE withdrawn_at_ms IS NULL") == [(1,)]

    together(scenario())


def test_W7_nothing_is_launched_after_the_lease_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.db"
    machine = SleepingMachine()
    launch = launchers.Launches._launch  # pyright: ignore[reportPrivateUsage]

    async def late(self: Any, *given: Any) -> None:
        if not machine.slept_ms:
            machine.slept_ms = 60_000
        await launch(self, *given)

    monkeypatch.setattr(launchers.Launches, "_launch", late)

    async def scenario() -> None:
        calls = Calls()
        async with engine_with(path, calls, providers=machine, lease=30) as engine:
            await engine.start(learn, "bert", id="it")
            await until(partial(calls.has, 1))
            assert stored(path) == [("QUEUED", RERUN)], "the entry under the old lease was not launched"

    together(scenario())


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["gpu"], "takes a launcher for each queue"),
        ({"gpu": "./train.sh"}, "needs `async def launch"),
        ({"": Calls()}, "a queue"),
    ],
)
def test_C4_a_wrong_launcher_is_refused(given: Any, message: str) -> None:
    with pytest.raises((InvalidOption, hf.InvalidId), match=message):
        hf.Engine(":memory:", workflows=[learn], activities=[train], launchers=given)
