"""``on_exhausted="pause"``: a person decides when the retries of an activity are used up (R26, R27)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import InvalidOption, NothingExhausted

seen: dict[str, Any] = {}


class Declined(Exception):
    """Not a passing failure."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


def checked(path: Path) -> None:
    if are_files():
        check_tables(path)
        assert audit(path) == []


async def state_of(handle: hf.Handle[Any]) -> str:
    return (await handle.describe()).state


async def paused(handle: hf.Handle[Any]) -> str:
    async with asyncio.timeout(10):
        async for change in handle.watch():
            if change.state == "PAUSED":
                break
    return (await handle.describe()).pause_reason or ""


@hf.activity(
    name="charge",
    retry=hf.Retry(attempts=2, initial=0, jitter=False, non_retryable=(Declined,)),
    on_exhausted="pause",
)
async def charge(cents: int) -> int:
    seen["tries"] = seen.get("tries", 0) + 1
    if seen.get("declined"):
        raise Declined("never")
    if not seen.get("mended"):
        raise ValueError("the bank is down")
    return cents


@hf.workflow(name="pays")
async def pays() -> str:
    try:
        return f"paid {await charge(5)}"
    except (ValueError, Declined) as error:
        return f"failed: {error}"


def test_R26_a_resume_gives_a_fresh_budget(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, pays, charge) as engine:
            handle = await engine.start(pays, id="it")
            assert await paused(handle) == "charge has used up its retries: ValueError: the bank is down"
            assert seen["tries"] == 2
            checked(path)
            await handle.resume()
            await until(lambda: seen["tries"] == 4)
            await paused(handle)
            checked(path)
            seen["mended"] = True
            await handle.resume()
            assert await handle.result(timeout=10) == "paid 5"
            assert seen["tries"] == 5
            checked(path)

    together(scenario())


def test_R27_a_resume_lets_the_failure_through(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, pays, charge) as engine:
            handle = await engine.start(pays, id="it")
            await paused(handle)
            await handle.resume(fail=True)
            assert await handle.result(timeout=10) == "failed: the bank is down"
            assert seen["tries"] == 2
            checked(path)

    together(scenario())


def test_R27_a_pause_by_a_person_has_no_failure_to_let_through(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, pays, charge) as engine:
            handle = await engine.start(pays, id="it")
            await paused(handle)
            seen["mended"] = True
            await handle.resume()
            other = await engine.start(pays, id="other", deadline=60)
            await handle.result(timeout=10)
            await other.result(timeout=10)
        async with hf.connect(path) as client:
            waits = await client.start("pays", id="waits")
            await waits.pause()
            with pytest.raises(NothingExhausted, match="'waits'"):
                await waits.resume(fail=True)
            assert await state_of(waits) == "PAUSED"

    together(scenario())


def test_R26_a_failure_that_is_not_retried_is_delivered(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen["declined"] = True
        async with engine_of(tmp_path / "it.db", pays, charge) as engine:
            assert await engine.run(pays) == "failed: never"

    together(scenario())


def test_R27_a_cancel_of_a_paused_instance_runs_no_body_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, pays, charge) as engine:
            handle = await engine.start(pays, id="it")
            await paused(handle)
            await handle.cancel()
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result(timeout=10)
            assert seen["tries"] == 2
            checked(path)

    together(scenario())


def test_R26_a_terminated_instance_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, pays, charge) as engine:
            handle = await engine.start(pays, id="it")
            await paused(handle)
            await handle.terminate()
            with pytest.raises(hf.WorkflowTerminated):
                await handle.result(timeout=10)
            checked(path)

    together(scenario())


@hf.activity(name="slow", start_to_close=0.1, retry=hf.Retry(attempts=1), on_exhausted="pause")
async def slow() -> str:
    seen["tries"] = seen.get("tries", 0) + 1
    if not seen.get("mended"):
        await asyncio.sleep(30)
    return "done"


@hf.workflow(name="waits_for_slow")
async def waits_for_slow() -> str:
    return await slow()


def test_R26_timeouts_use_up_the_retries(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, waits_for_slow, slow) as engine:
            handle = await engine.start(waits_for_slow, id="it")
            assert "ActivityTimedOut" in await paused(handle)
            checked(path)
            seen["mended"] = True
            await handle.resume()
            assert await handle.result(timeout=10) == "done"
            checked(path)

    together(scenario())


@hf.activity(name="fails_at", retry=hf.Retry(attempts=1), on_exhausted="pause")
async def fails_at(number: int) -> int:
    seen[f"body {number}"] = seen.get(f"body {number}", 0) + 1
    if not seen.get("mended"):
        raise ValueError(f"no {number}")
    return number


@hf.workflow(name="several")
async def several() -> int:
    found = await asyncio.gather(*(fails_at(number) for number in range(3)), return_exceptions=True)
    return sum(number for number in found if isinstance(number, int))


@pytest.mark.parametrize("fail", [True, False])
def test_R26_several_activities_of_one_pause(tmp_path: Path, fail: bool) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, several, fails_at) as engine:
            handle = await engine.start(several, id="it")
            await paused(handle)
            await until(lambda: len(rows(path, "SELECT 1 FROM attempts WHERE state = 'FAILED'")) == 3)
            checked(path)
            seen["mended"] = True
            await handle.resume(fail=fail)
            assert await handle.result(timeout=10) == (0 if fail else 3)
            assert {count for name, count in seen.items() if name != "mended"} == {1 if fail else 2}
            checked(path)

    together(scenario())


def test_R26_a_node_of_a_flow_sets_the_option(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        text = (
            "flow: graph\nactivities:\n  begin: {trigger: true}\n"
            "  try: {run: plain, after: begin, on_exhausted: pause, retry: {attempts: 1}}\n"
        )
        flow = hf.Flow.parse(text, name="graph.yaml")
        async with engine_of(path, flow, plain) as engine:
            handle = await engine.start(flow, id="it")
            await paused(handle)
            checked(path)
            seen["mended"] = True
            await handle.resume()
            await handle.result(timeout=10)
            checked(path)

    together(scenario())


@hf.activity(name="plain")
async def plain() -> int:
    if not seen.get("mended"):
        raise ValueError("not yet")
    return 1


def test_R26_the_option_is_checked() -> None:
    with pytest.raises(InvalidOption, match="on_exhausted must be 'fail' or 'pause'"):
        hf.activity(on_exhausted="stop")  # type: ignore[call-overload]
