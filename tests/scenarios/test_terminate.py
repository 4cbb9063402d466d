"""Terminating (A9): an instance is ended now, from this process or another, and none of its code is run for it."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, together, until
from tests.support.inside import attempts_of, live_instances, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.runtime.attempts.running_attempt import StopReason

NEVER = 3_600


class Watch:
    """What the code of a test saw."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()
        self.lines: list[str] = []


def hanging(watch: Watch, **options: Any) -> tuple[hf.Activity[[], int], hf.Workflow[[], int]]:
    """A workflow that waits for a body that hangs, and notes whatever runs."""

    @hf.activity(**options)
    async def hang() -> int:
        watch.begun.set()
        try:
            while True:
                await asyncio.sleep(0.01)
                hf.heartbeat()
        finally:
            watch.stopped.set()

    @hf.workflow
    async def waits() -> int:
        try:
            return await hang()
        except (Exception, asyncio.CancelledError):
            watch.lines.append("except")
            raise
        finally:
            await hang()  # a clean-up that never comes to be
            watch.lines.append("finally")

    return hang, waits


@pytest.mark.parametrize("cache_size", [1_000, 0])
def test_A9_whoever_waits_is_told_and_no_code_of_the_workflow_runs(tmp_path: Path, cache_size: int) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        watch = Watch()
        async with engine_of(path, *hanging(watch), cache_size=cache_size) as engine:
            handle = await engine.start("waits", id="a")
            waiting = asyncio.ensure_future(handle.result())
            await watch.begun.wait()
            await handle.terminate("not wanted any more")
            assert len(live_instances(worker_of(engine))) == 0
            [running] = attempts_of(worker_of(engine)).running.values()
            assert running.stop_reason is StopReason.CANCELLED
            with pytest.raises(hf.WorkflowTerminated, match=r"^a was terminated: not wanted any more$") as told:
                await waiting
            assert told.value.reason == "not wanted any more"
            assert isinstance(told.value, hf.HoldfastError)
            await watch.stopped.wait()  # its body is cancelled at once, in this process
            description = await handle.describe()
            assert (description.state, description.collation_key, description.waiting_for) == ("TERMINATED", "7", [])
            assert (await handle.history())[-1].kind == "workflow_terminated"
            await until(lambda: rows(path, "SELECT state FROM attempts") == [("CANCELLED",)])
        check_tables(path)
        assert audit(path) == []
        assert watch.lines == []

    together(scenario())


def test_A9_an_instance_is_ended_once_and_only_if_it_is_there(tmp_path: Path) -> None:
    @hf.workflow
    async def quick() -> int:
        return 1

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", quick) as engine:
            assert await engine.run(quick, id="done") == 1
            with pytest.raises(hf.InstanceClosed, match="'done' is COMPLETED"):
                await engine.get("done").terminate()
            with pytest.raises(hf.InstanceNotFound, match="'nobody'"):
                await engine.get("nobody").terminate()
            handle = await engine.start("elsewhere", id="open")
            await handle.terminate()
            with pytest.raises(hf.InstanceClosed, match="'open' is TERMINATED"):
                await handle.terminate()
            with pytest.raises(hf.WorkflowTerminated, match=r"^open was terminated$") as told:
                await handle.result()
            assert told.value.reason is None
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@pytest.mark.parametrize("reason", [7, b"no", "x" * 9_000, "\ud800", "a\0b"])
def test_a_reason_that_is_no_text_is_refused_and_nothing_changes(tmp_path: Path, reason: Any) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db") as engine:
            handle = await engine.start("elsewhere", id="a")
            with pytest.raises((hf.errors.InvalidOption, hf.PayloadError), match="reason"):
                await handle.terminate(reason)
            assert (await handle.describe()).state == "REQUESTED"

    together(scenario())


def test_G1_an_owner_elsewhere_is_fenced_and_its_body_stops_with_its_next_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        watch = Watch()
        async with engine_of(path, *hanging(watch, heartbeat=0.2)) as owner:
            handle = await owner.start("waits", id="a")
            waiting = asyncio.ensure_future(handle.result())
            await watch.begun.wait()
            other = await hf.connect(path)
            elsewhere = asyncio.ensure_future(other.get("a").result())
            await asyncio.sleep(0)
            await other.get("a").terminate("by another")
            for future in (waiting, elsewhere):
                with pytest.raises(hf.WorkflowTerminated, match="by another"):
                    await future
            await watch.stopped.wait()
            await until(lambda: rows(path, "SELECT state FROM attempts") == [("CANCELLED",)])
            await other.close()
        check_tables(path)
        assert watch.lines == []

    together(scenario())


def test_G11_an_answer_that_comes_after_the_end_goes_nowhere_and_evicts_the_code(tmp_path: Path) -> None:
    """The owner elsewhere does not know yet: the turn that would apply the answer changes nothing."""
    path = tmp_path / "shop.db"
    go_on = threading.Event()
    begun = threading.Event()

    @hf.activity
    def slow() -> int:
        begun.set()
        go_on.wait(20)
        return 1

    @hf.workflow
    async def waits() -> int:
        return await slow() + await slow()

    async def scenario() -> None:
        async with engine_of(path, slow, waits) as owner:
            await owner.start(waits, id="a")
            await asyncio.to_thread(begun.wait, 20)
            other = await hf.connect(path)
            await other.get("a").terminate()
            go_on.set()
            instances = live_instances(worker_of(owner))
            await until(lambda: len(instances) == 0)
            await until(lambda: rows(path, "SELECT state FROM attempts") == [("COMPLETED",)])
            await other.close()
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_A9_bodies_and_code_elsewhere_stop_with_the_next_heartbeat_of_their_worker(tmp_path: Path) -> None:
    """Also a body that never says `hf.heartbeat`, and code that waits for a time."""
    path = tmp_path / "shop.db"
    begun, stopped = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def silent() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @hf.workflow
    async def waits() -> None:
        await silent()

    @hf.workflow
    async def sleeps() -> None:
        await asyncio.sleep(NEVER)

    async def scenario() -> None:
        async with engine_of(path, silent, waits, sleeps, lease=1) as owner:
            await owner.start(waits, id="a")
            await owner.start(sleeps, id="b")
            await owner.start(sleeps, id="c")
            await begun.wait()
            other = await hf.connect(path)
            for name in ("a", "b"):
                await other.get(name).terminate()
            await stopped.wait()
            instances = live_instances(worker_of(owner))
            await until(lambda: len(instances) == 1)
            assert (await owner.get("c").describe()).state == "RUNNING"
            await other.close()
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_A9_timers_and_blocked_instances_end_too(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    @hf.workflow
    async def sleeps() -> None:
        await asyncio.sleep(NEVER)

    @hf.workflow(name="sleeps")
    async def changed() -> None: ...

    async def scenario() -> None:
        async with engine_of(path, sleeps) as engine:
            await engine.start(sleeps, id="timer")
            await engine.start(sleeps, id="blocked")
            await engine.get("timer").terminate()
            await until(lambda: len(rows(path_of(engine), "SELECT 1 FROM timers")) == 1)
        async with engine_of(path, changed) as engine:
            rows(path, "UPDATE instances SET claimable_at_ms = 0 WHERE id = 'blocked'")
            with pytest.raises(hf.WorkflowBlocked):
                await engine.get("blocked").result()
            await engine.get("blocked").terminate("cannot be mended")
            with pytest.raises(hf.WorkflowTerminated, match="cannot be mended"):
                await engine.get("blocked").result()
        check_tables(path)
        assert audit(path) == []

    together(scenario())
