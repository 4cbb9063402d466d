"""Details of executions: composite keys of code, keys before the first turn, earlier executions, notes (K1, K6, A7)."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.scenarios.flowing import FOX, FOXES, flow_of
from tests.scenarios.support import engine_of, together

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports
from holdfast.core.activity_events import ReportKind
from holdfast.errors import InvalidOption
from holdfast.storage.members.contract_rows import InsertRequest


@hf.activity(name="step")
async def step(number: int) -> int:
    return number + 1


@hf.workflow(name="inner")
async def inner(number: int) -> int:
    return await step(await step(number))


@hf.workflow(name="outer")
async def outer() -> list[int]:
    first = await step(0)
    both = await asyncio.gather(inner(10), inner(20))
    return [first, *both, await step(5)]


async def composite(handle: hf.Handle[object], wanted: str) -> None:
    """Wait until an instance has this composite key."""
    while (await handle.describe()).composite_key != wanted:  # noqa: ASYNC110 - its children commit by themselves
        await asyncio.sleep(0.01)


async def offer_of(reports: ActivityReports) -> str:
    """The exec id of the first external activity that is open."""
    while not (offers := await reports.open_activities(limit=1)):  # noqa: ASYNC110 - a turn offers it
        await asyncio.sleep(0.01)
    return offers[0].activity_exec_id


async def listed(engine: hf.Client) -> None:
    """Wait until a worker has handled a request."""
    while not await engine.list():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_K6_the_composite_of_code_contains_the_keys_of_its_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", outer, inner, step) as engine:
            handle = await engine.start(outer, id="it")
            assert await handle.result(timeout=20) == [1, 12, 22, 6]
            described = await handle.describe()
            assert described.collation_key == "6666"
            assert described.composite_key == "6" + "6" + "1662" + "6" + "1662" + "6"

    together(scenario())


def test_K6_the_composite_of_code_contains_flows_and_open_children(tmp_path: Path) -> None:
    fox = flow_of(FOX)

    @hf.workflow(name="owner")
    async def owner() -> None:
        task = asyncio.ensure_future(waits())
        await fox({"speed": 5})
        await hf.event("go", int)
        task.cancel()

    @hf.workflow(name="waits")
    async def waits() -> None:
        await hf.event("never", int)

    async def scenario() -> None:
        async with hf.Engine(
            tmp_path / "it.db", flows=[fox], workflows=[owner, waits], activities=[*FOXES, step]
        ) as engine:
            handle = await engine.start(owner, id="it")
            await composite(handle, "6" + "1366663" + "2" + "8" + "152" + "5")
            await handle.terminate()

    together(scenario())


def test_K1_a_flow_that_was_started_by_name_has_its_key_before_the_first_turn(tmp_path: Path) -> None:
    fox = flow_of(FOX)

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with hf.connect(path) as client:
            unknown = await client.start("fox", {"speed": 5}, id="unknown")
            assert (await unknown.describe()).collation_key == "", "no worker has saved a flow of this name"
            await unknown.terminate()
        async with hf.Engine(path, flows=[fox], activities=FOXES):
            pass
        async with hf.connect(path) as client:
            handle = await client.start("fox", {"speed": 5}, id="it")
            described = await handle.describe()
            assert (described.state, described.turn) == ("REQUESTED", 0)
            assert described.collation_key == "999999000000000"
            assert described.composite_key == "999999"

    together(scenario())


@hf.workflow(name="rounds")
async def rounds(number: int = 0) -> int:
    number = await step(number)
    return number if number > 2 else hf.continue_as_new(number)


def test_G4_an_earlier_execution_is_described_with_its_ledgers_and_its_input(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", rounds, step) as engine:
            handle = await engine.start(rounds, 0, id="it")
            assert await handle.result(timeout=20) == 3
            newest = await handle.describe()
            assert (newest.execution, newest.executions) == (3, 3)
            for number in (1, 2):
                described = await handle.describe(execution=number)
                assert (described.execution, described.executions) == (number, 3)
                assert [(view.state, view.ledger) for view in described.attempts] == [("COMPLETED", 888000001000001)]
                assert described.input == {"number": number - 1}
                assert described.attempts[0].input == {"number": number - 1}
                assert described.collation_key == described.composite_key == "6"
                assert (described.waiting_for, described.mailbox, described.obstacles) == ([], [], [])
                assert described.turn == 2
            assert (await handle.describe(execution=3)) == newest
            for wrong in (0, 4):
                with pytest.raises(InvalidOption, match="the execution of 'it'"):
                    await handle.describe(execution=wrong)
            exported = [json.loads(await handle.export_history(number)) for number in (1, 2)]
            assert [each["execution"] for each in exported] == [1, 2]

    together(scenario())


@hf.activity(name="train", external=True, start_to_close=600)
async def train(epochs: int) -> int:  # type: ignore[empty-body]  # it runs elsewhere
    ...


@hf.workflow(name="training")
async def training() -> int:
    return await train(3)


def test_A7_notes_of_executors_are_described_with_their_attempts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", training, train) as engine:
            handle = await engine.start(training, id="it")
            reports = ActivityReports(engine._calls, source="gpu-7")
            exec_id = await offer_of(reports)
            assert (await reports.report(exec_id, ReportKind.RUNNING)).is_applied
            assert (await reports.report(exec_id, ReportKind.HEARTBEAT, payload='{"epoch": 1}')).is_applied
            for number in range(5):
                assert (await reports.report(exec_id, ReportKind.NOTE, payload=f'{{"loss": {number}}}')).is_applied
            (attempt,) = (await handle.describe()).attempts
            assert [note.value for note in attempt.notes] == [{"loss": number} for number in range(5)]
            assert {note.source for note in attempt.notes} == {"gpu-7"}
            assert attempt.details == {"epoch": 1}
            assert attempt.heartbeat_at is not None
            await handle.cancel_activity("train")
            (attempt,) = (await handle.describe()).attempts
            assert attempt.state == "CANCELLED_RUNNING"
            assert attempt.cancel_requested_at is not None
            assert (await reports.stopped(exec_id, claim=None)).is_applied
            with pytest.raises(hf.WorkflowFailed) as failed:
                await handle.result(timeout=20)
            assert isinstance(failed.value.cause, hf.ActivityCancelled)
            assert (await reports.report(exec_id, ReportKind.NOTE, payload='"late"')).is_applied
            (attempt,) = (await handle.describe()).attempts
            assert [note.value for note in attempt.notes][-1] == "late"

    together(scenario())


def test_C4_an_activity_that_waits_for_an_executor_is_no_obstacle(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", training, train) as engine:
            handle = await engine.start(training, id="it")
            await offer_of(ActivityReports(engine._calls))
            assert (await handle.describe()).obstacles == []
        async with engine_of(tmp_path / "it.db", training) as engine:
            (obstacle,) = (await engine.get("it").describe()).obstacles
            assert obstacle.startswith("no live worker has the external activity 'train', so reports about it")

    together(scenario())


def test_C2_a_request_may_name_the_time_of_the_first_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", outer, inner, step) as engine:
            at_ms = engine._session.store.now_ms() + 600
            request = InsertRequest(request_id="r", workflow="outer", start_at_ms=at_ms)
            await engine._calls.local.committer.commit(request)
            engine._session.poll()
            await listed(engine)
            described = await engine.get("r").describe()
            assert (described.state, described.turn) == ("REQUESTED", 0)
            assert await engine.get("r").result(timeout=20) == [1, 12, 22, 6]
            assert engine._session.store.now_ms() >= at_ms

    together(scenario())
