"""One activity that is cancelled from outside of its workflow (A1, A6): `handle.cancel_activity`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together, until

import holdfast as hf
from holdfast.audit.auditor import audit

ONCE = hf.Retry(attempts=1)
begun: list[str] = []
"""The bodies that began."""


@pytest.fixture(autouse=True)
def _clean() -> None:
    begun.clear()


@hf.activity(name="wait")
async def wait() -> str:
    begun.append("wait")
    await asyncio.sleep(60)
    return "waited"


@hf.activity(name="block")
def block() -> str:
    begun.append("block")
    while True:
        hf.heartbeat()
        time.sleep(0.005)


@hf.activity(process=True)
def wait_in_process() -> str:
    while True:
        hf.heartbeat()
        time.sleep(0.005)


@hf.activity(name="insist")
async def insist() -> str:
    begun.append("insist")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "insisted"
    return "waited"


@hf.activity(name="fail")
async def fail() -> str:
    begun.append("fail")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ValueError("the body failed while it stopped") from None
    return "waited"


@hf.activity(queue="nobody")
async def unclaimed() -> str:
    return "claimed"


@hf.activity(retry=hf.Retry(initial=60))
async def flaky() -> str:
    begun.append("flaky")
    raise ValueError("flaky")


def states(path: Path) -> list[str]:
    return [state for (state,) in rows(path, "SELECT state FROM attempts ORDER BY activity, attempt")]


def catching(activity: hf.Activity[..., Any]) -> hf.Workflow[..., Any]:
    @hf.workflow
    async def flow() -> str:
        try:
            return str(await activity())
        except hf.ActivityCancelled as error:
            return f"caught: {error} ({type(error.__cause__).__name__})"

    return flow


def cancelled(activity: hf.Activity[..., Any], when: Callable[[Path], object], **options: Any) -> tuple[str, list[str]]:
    """The result of a workflow whose activity was cancelled at a time, and the states of its attempts."""

    async def scenario() -> tuple[str, list[str]]:
        flow = catching(activity)
        async with engine_of(":memory:", flow, activity, lease=60, **options) as engine:
            handle = await engine.start(flow, id="it")
            await until(lambda: when(path_of(engine)))
            await handle.cancel_activity(activity.name)
            result = await handle.result(timeout=8)  # before the next heartbeat of the worker
            check_tables(path_of(engine))
            assert [problem.text for problem in audit(path_of(engine))] == []
            return result, states(path_of(engine))

    return together(scenario())


def is_running(path: Path) -> bool:
    return states(path) == ["RUNNING"] and bool(begun)


@pytest.mark.parametrize(
    ("activity", "result", "state"),
    [
        (wait, "caught: wait was cancelled (NoneType)", "CANCELLED"),
        (block, "caught: block was cancelled (NoneType)", "CANCELLED"),
        (insist, "insisted", "COMPLETED"),
        (fail, "caught: fail was cancelled (ValueError)", "FAILED"),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_A1_a_running_body_is_stopped_and_its_workflow_gets_the_answer(
    activity: hf.Activity[..., Any], result: str, state: str
) -> None:
    assert cancelled(activity, is_running) == (result, [state])


@pytest.mark.slow
def test_A1_a_body_in_a_process_is_stopped() -> None:
    found, attempts = cancelled(wait_in_process, lambda path: states(path) == ["RUNNING"])
    assert found.startswith("caught: ")
    assert attempts == ["CANCELLED"]


@pytest.mark.parametrize(
    ("activity", "attempts", "options"),
    [(unclaimed, ["READY"], {"queues": ["default"]}), (flaky, ["FAILED", "READY"], {})],
    ids=["unclaimed", "retried"],
)
def test_A1_an_attempt_that_no_executor_has_is_cancelled_at_once(
    activity: hf.Activity[..., Any], attempts: list[str], options: dict[str, Any]
) -> None:
    found, after = cancelled(activity, lambda path: states(path) == attempts, **options)
    assert found.startswith("caught: ")
    assert after == [*attempts[:-1], "CANCELLED"]


def test_A1_the_error_ends_a_workflow_that_does_not_catch_it() -> None:
    async def scenario() -> None:
        flow = calling(wait)
        async with engine_of(":memory:", flow, wait) as engine:
            handle = await engine.start(flow, id="it")
            await until(lambda: begun)
            await handle.cancel_activity("wait#1")
            with pytest.raises(hf.WorkflowFailed) as failed:
                await handle.result(timeout=20)
            assert isinstance(failed.value.cause, hf.ActivityCancelled)

    together(scenario())


@hf.activity(name="numbered")
async def numbered(number: int) -> int:
    begun.append(str(number))
    await asyncio.sleep(0 if number == 1 else 60)
    return number


@hf.workflow
async def several() -> list[str]:
    results = await asyncio.gather(*(numbered(number) for number in (1, 2, 3)), return_exceptions=True)
    return [repr(result) for result in results]


def test_A1_a_call_is_named_by_its_place_among_the_calls_of_its_name() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", several, numbered) as engine:
            handle = await engine.start(several, id="it")
            await until(lambda: states(path_of(engine)) == ["COMPLETED", "RUNNING", "RUNNING"])
            with pytest.raises(hf.ActivityNotFound, match="name one of numbered#2, numbered#3"):
                await handle.cancel_activity("numbered")
            with pytest.raises(hf.ActivityNotFound, match="has no activity 'other'; open are numbered"):
                await handle.cancel_activity("other")
            with pytest.raises(hf.ActivityNotFound, match="has called 'numbered' 3 times"):
                await handle.cancel_activity("numbered#4")
            with pytest.raises(hf.ActivityClosed, match="'numbered#1' of 'it' is done"):
                await handle.cancel_activity("numbered#1")
            await handle.cancel_activity("numbered#2")
            await until(lambda: states(path_of(engine)) == ["COMPLETED", "CANCELLED", "RUNNING"])
            await handle.cancel_activity("numbered#3")
            first, second, third = await handle.result(timeout=20)
            assert first == "1"
            assert second == third == "ActivityCancelled('numbered was cancelled')"
            with pytest.raises(hf.InstanceClosed):
                await handle.cancel_activity("numbered#3")
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("other").cancel_activity("numbered")
            assert audit(path_of(engine)) == []

    together(scenario())


@hf.activity
async def ticks() -> AsyncIterator[int]:
    yield 1
    yield 2
    begun.append("ticks")
    await asyncio.sleep(60)
    yield 3


@hf.workflow
async def summing() -> str:
    total = 0
    try:
        async for value in ticks():
            total += value
    except hf.ActivityCancelled:
        return f"{total} and cancelled"
    return str(total)


def test_L15_the_values_before_the_cancel_of_a_stream_are_delivered_first() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", summing, ticks) as engine:
            handle = await engine.start(summing, id="it")
            await until(lambda: rows(path_of(engine), "SELECT 1 FROM attempts WHERE ledger = 889000002000002"))
            await handle.cancel_activity(ticks.name)
            assert await handle.result(timeout=20) == "3 and cancelled"
            check_tables(path_of(engine))
            assert audit(path_of(engine)) == []

    together(scenario())


@hf.workflow
async def impatient() -> str:
    """Abandons the activity after its cancel was requested."""
    task = asyncio.ensure_future(stubborn())
    await hf.event("stop", str)
    task.cancel()
    await hf.event("end", str)
    return "ended"


@hf.activity
async def stubborn() -> str:
    """Ends when the test says so, whatever it is asked."""
    begun.append("stubborn")
    while "go" not in begun:
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            begun.append("asked")
    return "stubborn"


def test_A1_the_answer_to_a_workflow_that_abandoned_the_activity_is_ignored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", impatient, stubborn) as engine:
            handle = await engine.start(impatient, id="it")
            await until(lambda: "stubborn" in begun)
            await handle.cancel_activity(stubborn.name)
            await until(lambda: "asked" in begun)
            await handle.raise_event("stop", "now")
            await until(lambda: any(entry == "activity_abandoned" for entry in kinds(path_of(engine))))
            with pytest.raises(hf.ActivityClosed, match="is cancelled"):
                await handle.cancel_activity(stubborn.name)
            begun.append("go")
            await until(lambda: states(path_of(engine)) == ["COMPLETED"])
            await handle.raise_event("end", "now")
            assert await handle.result(timeout=20) == "ended"
            assert audit(path_of(engine)) == []

    together(scenario())


def kinds(path: Path) -> list[str]:
    return [
        "activity_abandoned"
        for (events,) in rows(path, "SELECT events FROM history")
        if b"activity_abandoned" in bytes(events)
    ]


def test_A6_a_worker_in_another_process_learns_it_with_a_heartbeat(tmp_path: Path) -> None:
    """The client has no worker: the reconciler of the worker finds the request with its next heartbeat."""

    async def scenario() -> None:
        flow = catching(wait)
        path = tmp_path / "it.db"
        async with engine_of(path, flow, wait), hf.connect(path) as client:
            handle = await client.start(flow.name, id="it")
            await until(lambda: begun)
            await handle.cancel_activity(wait.name)
            assert (await handle.result(timeout=20)).startswith("caught: ")
            check_tables(path)

    together(scenario())


def test_G13_a_cancelled_activity_is_not_retried_whatever_its_policy() -> None:
    @hf.activity(name="again", retry=hf.Retry(attempts=5, initial=0.001))
    async def again() -> None:
        begun.append("again")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("again") from None

    found, attempts = cancelled(again, is_running)
    assert found == "caught: again was cancelled (ValueError)"
    assert attempts == ["FAILED"]
    assert begun == ["again"]


def test_K4_the_node_of_a_flow_fails_with_the_cancel_of_its_activity() -> None:
    async def scenario() -> None:
        flow = hf.Flow("shop")
        order = flow.trigger("order")
        flow.run("pay", numbered, after=order, input={"number": 2})
        async with engine_of(":memory:", flow, numbered) as engine:
            handle = await engine.start(flow, id="it")
            await until(lambda: begun)
            await handle.cancel_activity("pay")
            with pytest.raises(hf.WorkflowFailed) as failed:
                await handle.result(timeout=20)
            assert "ActivityCancelled: numbered was cancelled" in str(failed.value)
            assert audit(path_of(engine)) == []

    together(scenario())


def test_A5_a_cancel_and_a_time_out_end_the_activity_once() -> None:
    @hf.activity(name="deaf", start_to_close=0.2, heartbeat=0.1)
    def deaf() -> str:
        begun.append("deaf")
        time.sleep(0.5)
        return "late"

    found, attempts = cancelled(deaf, is_running)
    assert found in ("late", "caught: deaf was cancelled (ActivityTimedOut)")
    assert attempts in (["COMPLETED"], ["TIMED_OUT"])


def test_A1_time_that_skips_waits_for_no_cancelled_body() -> None:
    async def scenario() -> None:
        flow = catching(flaky)
        async with skipping(
            flow,
            flaky,
        ) as environment:
            handle = await environment.start(flow, id="it")
            await until(lambda: begun)
            await handle.cancel_activity(flaky.name)
            assert (await handle.result(timeout=20)).startswith("caught: ")

    together(scenario())
