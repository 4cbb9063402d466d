"""Pauses of instances (R20-R25, R28): `handle.pause` and `handle.resume`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import Definition, check_tables, engine_of, rows, together, until
from tests.support.inside import worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import InvalidOption, ReleaseTooOld, UsageError
from holdfast.storage.relational.statements import check_release
from holdfast.testing.environment import Environment

seen: dict[str, Any] = {}
gate = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global gate  # noqa: PLW0603 - an event belongs to the loop of one test
    seen.clear()
    gate = asyncio.Event()


def simulated(path: Path, *definitions: Definition, **options: Any) -> Environment:
    """An engine whose time skips."""
    workflows = [each for each in definitions if isinstance(each, hf.Workflow)]
    activities = [each for each in definitions if isinstance(each, hf.Activity)]
    return Environment(path, workflows=workflows, activities=activities, **options)


def checked(path: Path) -> None:
    """The tables are sound."""
    if are_files():
        check_tables(path)
        assert audit(path) == []


def states(path: Path) -> dict[str, int]:
    return dict(rows(path, "SELECT state, count(*) FROM attempts GROUP BY state"))


@hf.activity(name="held", retry=hf.Retry(attempts=1))
async def held(number: int) -> int:
    seen[f"body {number}"] = seen.get(f"body {number}", 0) + 1
    await gate.wait()
    return number


@hf.activity(name="quick")
async def quick(number: int) -> int:
    seen["quick"] = seen.get("quick", 0) + 1
    return number


@hf.workflow(name="fans_out")
async def fans_out(count: int) -> int:
    return sum(await asyncio.gather(*(held(number) for number in range(count))))


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_R20_R22_a_fan_out_is_paused_with_some_running_and_finishes_after_the_resume(
    tmp_path: Path, count: int
) -> None:
    """Scenario 9: the results of the running ones wait, none starts, and no body runs twice."""

    async def scenario() -> None:
        path = tmp_path / "it.db"
        running = min(20, count // 2)
        async with engine_of(path, fans_out, held, max_activities=running) as engine:
            handle = await engine.start(fans_out, count, id="it")
            await until(lambda: len(seen) == running)
            turns = (await handle.describe()).turn
            await handle.pause("look at it")
            assert states(path) == {"RUNNING": running, "READY": count - running}
            gate.set()
            await until(lambda: states(path).get("COMPLETED") == running)
            described = await handle.describe()
            assert described.state == "PAUSED"
            assert described.turn == turns
            assert len(seen) == running
            assert len(described.mailbox) == running
            checked(path)
            await handle.resume()
            assert await handle.result(timeout=60) == sum(range(count))
            assert set(seen.values()) == {1}
            assert len(seen) == count
            checked(path)

    together(scenario(), 90)


@hf.workflow(name="steps")
async def steps() -> list[str]:
    done: list[str] = []
    hf.on_query("done")(lambda: list(done))

    @hf.on_update("note")
    def note(text: str) -> str:
        done.append(text)
        return f"noted {text}"

    done.append(str(await quick(1)))
    value = await hf.event("go", str)
    done.append(value)
    return done


def test_R20_a_paused_instance_answers_queries_and_keeps_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, steps, quick) as engine:
            handle = await engine.start(steps, id="it")
            await until(lambda: seen.get("quick"))
            await handle.query("done", returns=list[str])
            await handle.pause()
            await handle.pause("a second one changes nothing")
            assert (await handle.describe()).pause_reason is None
            update = asyncio.create_task(handle.update("note", "a", id="u1", returns=str))
            await handle.raise_event("go", "on")
            assert not update.done()
            assert await handle.query("done", returns=list[str]) == ["1"]
            checked(path)
            await handle.resume()
            assert await update == "noted a"
            assert await handle.result(timeout=10) == ["1", "a", "on"]
            with pytest.raises(hf.InstanceClosed, match="cannot be paused"):
                await handle.pause()
            with pytest.raises(hf.InstanceClosed, match="cannot be resumed"):
                await handle.resume()

    together(scenario())


def test_R20_a_paused_instance_is_shown_with_its_reason_and_answers_without_an_owner(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, steps, quick) as engine:
            handle = await engine.start(steps, id="it")
            await until(lambda: seen.get("quick"))
            await handle.query("done", returns=list[str])
            await handle.pause("wait for Ada")
        async with engine_of(path, steps, quick) as engine:
            handle = engine.get("it")
            described = await handle.describe()
            assert described.state == "PAUSED"
            assert described.pause_reason == "wait for Ada"
            assert described.paused_at is not None
            [obstacle] = described.obstacles
            assert obstacle.startswith("paused since ")
            assert obstacle.endswith(": wait for Ada; holdfast resume it")
            assert await handle.query("done", returns=list[str]) == ["1"]
            assert [found.id for found in await engine.list("state = PAUSED")] == ["it"]
            with pytest.raises(TimeoutError, match="wait for Ada"):
                await handle.result(timeout=0.3)
            await handle.resume()
            await handle.raise_event("go", "on")
            assert await handle.result(timeout=10) == ["1", "on"]

    together(scenario())


@hf.workflow(name="sleeps")
async def sleeps() -> list[str]:
    found: list[str] = []

    async def after(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        found.append(name)

    await asyncio.gather(after(0.4, "second"), after(0.2, "first"), after(0.6, "third"))
    return found


def test_R24_timers_keep_their_times_and_fire_in_due_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with simulated(path, sleeps) as engine:
            handle = await engine.start(sleeps, id="it")
            await until(lambda: len(rows(path, "SELECT 1 FROM timers")) == 3)
            await handle.pause()
            # simulated time
            await asyncio.sleep(0.7)
            assert len(rows(path, "SELECT 1 FROM timers")) == 3
            await handle.resume()
            assert await handle.result(timeout=10) == ["first", "second", "third"]

    together(scenario())


@hf.workflow(name="limited", deadline=0.5)
async def limited() -> list[str]:
    found: list[str] = []

    async def after(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        found.append(name)

    early, late = asyncio.create_task(after(0.3, "before")), asyncio.create_task(after(0.8, "after"))
    try:
        await hf.event("never")
    except asyncio.CancelledError:
        found.append("deadline")
    await asyncio.gather(early, late)
    return found


def test_R25_a_deadline_that_passed_is_applied_in_due_order(tmp_path: Path) -> None:
    """Scenario 10: timers due before the deadline fire before it, later ones behind it."""

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with simulated(path, limited) as engine:
            handle = await engine.start(limited, id="it")
            await until(lambda: len(rows(path, "SELECT 1 FROM timers")) == 2)
            await handle.pause()
            # simulated time
            await asyncio.sleep(1.0)
            assert (await handle.describe()).state == "PAUSED"
            await handle.raise_event("never")  # it comes behind the deadline
            checked(path)
            await handle.resume()
            assert await handle.result(timeout=10) == ["before", "deadline", "after"]
            checked(path)

    together(scenario())


def test_R25_a_resume_moves_the_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with simulated(path, limited, steps, quick) as engine:
            handle = await engine.start(limited, id="it")
            await until(lambda: len(rows(path, "SELECT 1 FROM timers")) == 2)
            before = (await handle.describe()).deadline
            await handle.pause()
            # simulated time
            await asyncio.sleep(0.6)
            await handle.resume(extend=60)
            after = (await handle.describe()).deadline
            assert before is not None
            assert after is not None
            assert (after - before).total_seconds() == 60
            assert (await handle.describe()).state == "RUNNING"
            await handle.cancel()
            assert await handle.result(timeout=10) == ["before", "deadline", "after"]
            other = await engine.start(steps, id="other")
            await other.pause()
            with pytest.raises(UsageError, match="'other' has no deadline"):
                await other.resume(extend=1)

    together(scenario())


def test_R23_an_instance_that_has_not_begun_is_paused_and_returns_to_requested(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with hf.connect(path) as client:
            handle = await client.start("steps", id="it")
            await handle.pause()
            assert (await handle.describe()).state == "PAUSED"
            gone = await client.start("steps", id="gone")
            await gone.pause()
            await gone.cancel("not needed")
            assert (await gone.describe()).state == "CANCELLED"
            async with engine_of(path, steps, quick, sleeps) as worker:
                assert await worker.run(sleeps) == ["first", "second", "third"]
                assert not seen
            await handle.resume()
            assert (await handle.describe()).state == "REQUESTED"
        checked(path)
        async with engine_of(path, steps, quick) as engine:
            await engine.get("it").raise_event("go", "on")
            assert await engine.get("it").result(timeout=10) == ["1", "on"]

    together(scenario())


@hf.workflow(name="cleans_up")
async def cleans_up() -> str:
    try:
        await held(1)
    except asyncio.CancelledError:
        return f"cleaned {await quick(2)}"
    return "done"


@pytest.mark.parametrize("begins", [True, False])
def test_R23_a_cancel_of_a_paused_instance_reaches_its_code(tmp_path: Path, begins: bool) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        definitions = (cleans_up, held, quick) if begins else (cleans_up, quick)
        async with engine_of(path, *definitions) as engine:
            handle = await engine.start(cleans_up, id="it")
            await until(lambda: states(path))
            await handle.pause()
            await handle.cancel()
            assert await handle.result(timeout=10) == "cleaned 2"
            checked(path)

    together(scenario())


def test_R23_a_paused_instance_can_be_terminated(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, cleans_up, held, quick) as engine:
            handle = await engine.start(cleans_up, id="it")
            await until(lambda: seen)
            await handle.pause()
            await handle.terminate("enough")
            with pytest.raises(hf.WorkflowTerminated):
                await handle.result(timeout=10)
            checked(path)

    together(scenario())


@hf.activity(name="flaky", retry=hf.Retry(attempts=3, initial=0.2, jitter=False))
async def flaky() -> int:
    seen["tries"] = seen.get("tries", 0) + 1
    if seen["tries"] < 3:
        raise ValueError("not yet")
    return int(seen["tries"])


@hf.workflow(name="retries")
async def retries() -> int:
    return await flaky()


def test_R22_retries_that_fall_due_wait_for_the_resume(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with simulated(path, retries, flaky) as engine:
            handle = await engine.start(retries, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'FAILED'"))
            await handle.pause()
            # simulated time
            await asyncio.sleep(0.5)
            assert seen["tries"] == 1
            checked(path)
            await handle.resume()
            assert await handle.result(timeout=10) == 3

    together(scenario())


@hf.activity(name="fails_late", retry=hf.Retry(attempts=2, initial=0, jitter=False))
async def fails_late() -> int:
    seen["tries"] = seen.get("tries", 0) + 1
    if seen["tries"] == 1:
        await gate.wait()
        raise ValueError("late")
    return int(seen["tries"])


@hf.workflow(name="retries_late")
async def retries_late() -> int:
    return await fails_late()


def test_R21_a_retry_that_opens_during_the_pause_is_withheld(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with simulated(path, retries_late, fails_late) as engine:
            handle = await engine.start(retries_late, id="it")
            await until(lambda: seen)
            await handle.pause()
            gate.set()
            await until(lambda: states(path) == {"FAILED": 1, "READY": 1})
            # simulated time
            await asyncio.sleep(0.3)
            assert seen["tries"] == 1
            checked(path)
            await handle.resume()
            assert await handle.result(timeout=10) == 2
            checked(path)

    together(scenario())


@hf.activity(name="urgent", queue="nobody", schedule_to_start=0.4, schedule_to_close=0.4, retry=hf.Retry(attempts=1))
async def urgent() -> str:
    return "in time"


@hf.workflow(name="waits_for_a_worker")
async def waits_for_a_worker() -> str:
    return await urgent()


def test_R22_deadlines_of_attempts_that_wait_move_by_the_length_of_the_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, waits_for_a_worker, urgent, sleeps, queues=["default"]) as engine:
            handle = await engine.start(waits_for_a_worker, id="it")
            await handle.pause()
            assert await engine.run(sleeps) == ["first", "second", "third"], "longer than the deadlines"
            assert states(path) == {"READY": 1}
            checked(path)
            await handle.resume()
            async with engine_of(path, waits_for_a_worker, urgent, queues=["nobody"]):
                assert await handle.result(timeout=10) == "in time"

    together(scenario())


@hf.workflow(name="child")
async def child() -> int:
    return int(await held(7))


@hf.workflow(name="parent")
async def parent() -> int:
    return int(await child())


def test_R28_children_are_paused_with_their_family_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, parent, child, held) as engine:
            handle = await engine.start(parent, id="it")
            await until(lambda: seen)
            [found] = await handle.children()
            below = engine.get(found.id)
            await handle.pause()
            assert (await below.describe()).state == "RUNNING"
            await handle.pause(family=True)
            assert (await below.describe()).state == "PAUSED"
            gate.set()
            await handle.resume()
            assert (await handle.describe()).state == "RUNNING"
            await handle.pause()
            await handle.resume(family=True)
            assert await handle.result(timeout=10) == 7
            checked(path)

    together(scenario())


def test_R22_an_instance_that_is_not_paused_refuses_a_resume(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, cleans_up, held) as engine:
            handle = await engine.start(cleans_up, id="it")
            with pytest.raises(hf.InstanceNotPaused, match="'it' is RUNNING, not PAUSED"):
                await handle.resume()
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("other").resume()
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("other").pause()
            with pytest.raises(InvalidOption):
                await handle.pause(3)  # type: ignore[arg-type]
            await until(lambda: seen)
            await handle.cancel()
            with pytest.raises(hf.InstanceNotRunning, match="is CANCEL_REQUESTED"):
                await handle.pause()
            await handle.terminate()

    together(scenario())


def test_R20_a_turn_of_a_stale_worker_is_rejected_after_the_pause_and_the_resume(tmp_path: Path) -> None:
    """The instance moves to another worker during the pause; what the first one holds is not asked any more."""

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, steps, quick) as first:
            handle = await first.start(steps, id="it")
            assert await handle.query("done", returns=list[str]) in ([], ["1"])
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'COMPLETED'"))
            async with hf.connect(path) as client, engine_of(path, steps, quick) as second:
                worker_of(first).claimer.close()  # so that the second one claims it
                await client.get("it").pause()
                await client.get("it").resume()
                await second.get("it").update("note", "b", returns=str)
                assert "b" in await handle.query("done", returns=list[str])
                await handle.raise_event("go", "on")
                assert await handle.result(timeout=10) == ["1", "b", "on"]
        checked(path)

    together(scenario())


def test_R29_an_older_release_does_not_open_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, steps, quick):
            pass
        if are_files():
            newest = max(oldest for (oldest,) in rows(path, "SELECT oldest FROM migrations"))
            with pytest.raises(ReleaseTooOld):
                check_release(path, found=newest, oldest=newest, newest=newest - 1)

    together(scenario())
