"""Requests of clients as rows: starts, events and cancels, with every column (C2, C3, G3)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.runtime.platform import SystemClockAndIds

CLOCK = SystemClockAndIds()


@hf.workflow
async def greets(name: str, times: int = 1) -> str:
    return " ".join([name] * times)


@hf.workflow
async def waits(name: str) -> str:
    return f"{name} {await hf.event('go', int)}"


@hf.workflow
async def sleeps() -> str:
    await asyncio.sleep(3_600)
    return "slept"


@hf.workflow
async def elsewhere() -> str:
    return "elsewhere"


ALL = (greets, waits, sleeps)


def sound(path: Path) -> None:
    check_tables(path)
    assert [problem.text for problem in audit(path)] == []


@pytest.mark.parametrize("given", ['["a", 2]', '{"name": "a", "times": 2}'])
def test_C2_one_insert_starts_a_workflow(tmp_path: Path, given: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            assert await by_rows.ask("greets", input=given, instance_id="it") == ("ACCEPTED", None)
            assert await engine.get("it").result(timeout=20) == "a a"
            request_id = by_rows.request("greets", input=given, source="cron")
            await until(lambda: by_rows.answer_to(request_id)[0] != "NEW")
            assert by_rows.answer_to(request_id)[0] == "ACCEPTED"
            assert await engine.get(request_id).result(timeout=20) == "a a", "the default id is that of the request"
            [(number,)] = rows(path, "SELECT instance_number FROM requests WHERE request_id = ?", request_id)
            assert rows(path, "SELECT id FROM instances WHERE number = ?", number) == [(request_id,)]
            sound(path)

    together(scenario())


def test_C2_a_repeated_insert_is_the_same_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            for _ in range(3):
                await by_rows.ask("greets", request_id="r", input='["a"]')
            assert await engine.get("r").result(timeout=20) == "a"
            assert rows(path, "SELECT count(*) FROM instances") == [(1,)]
            assert await by_rows.ask("greets", input='["a"]', instance_id="r") == ("ACCEPTED", None), "the same input"
            state, refusal = await by_rows.ask("greets", input='["b"]', instance_id="r")
            assert state == "REFUSED"
            assert "r" in (refusal or "")

    together(scenario())


def test_C7_a_worker_without_the_workflow_leaves_an_event_to_the_one_that_starts_it(tmp_path: Path) -> None:
    """A start and an event for it in one transaction: whichever worker reads them first, the event is not refused."""

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, elsewhere) as other:
            started = by_rows.request("waits", input='["a"]', instance_id="it")
            raised = by_rows.request(kind="event", instance_id="it", event_name="go", input="4")
            assert await by_rows.ask("elsewhere", instance_id="mine") == ("ACCEPTED", None)
            assert (await by_rows.ask(kind="cancel", instance_id="nobody"))[0] == "REFUSED", "nothing is to start it"
            assert await other.get("mine").result(timeout=20) == "elsewhere"
            assert [by_rows.answer_to(one) for one in (started, raised)] == [("NEW", None)] * 2
            async with engine_of(path, *ALL) as engine:
                await until(lambda: by_rows.answer_to(raised)[0] != "NEW")
                assert [by_rows.answer_to(one) for one in (started, raised)] == [("ACCEPTED", None)] * 2
                assert await engine.get("it").result(timeout=20) == "a 4"
        sound(path)

    together(scenario())


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"workflow": "greets", "instance_id": ""}, "the name of an instance must not be empty"),
        ({"workflow": "greets", "policy": ""}, "'' is not a valid policy for ids"),
        ({"workflow": ""}, "no workflow '' is registered here"),
        ({"kind": "event", "instance_id": ""}, "a request of kind event needs instance_id"),
    ],
)
def test_C2_an_empty_text_is_not_read_as_a_missing_one(tmp_path: Path, columns: dict[str, str], expected: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL):
            state, refusal = await by_rows.ask(input='["a"]', event_name="go", **columns)
            assert state == "REFUSED"
            assert expected in (refusal or "")

    together(scenario())

    together(scenario())


def test_G3_the_policy_for_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            assert (await by_rows.ask("greets", input='["a"]', instance_id="it"))[0] == "ACCEPTED"
            assert await engine.get("it").result(timeout=20) == "a"
            assert (await by_rows.ask("greets", input='["b"]', instance_id="it", policy="reuse"))[0] == "ACCEPTED"
            assert await engine.get("it").result(timeout=20) == "b"
            assert (await by_rows.ask("sleeps", instance_id="long"))[0] == "ACCEPTED"
            ended = await by_rows.ask("greets", input='["c"]', instance_id="long", policy="terminate_existing")
            assert ended[0] == "ACCEPTED"
            assert await engine.get("long").result(timeout=20) == "c"
            state, refusal = await by_rows.ask("greets", input='["d"]', policy="whatever")
            assert state == "REFUSED"
            assert "whatever" in (refusal or "")
            sound(path)

    together(scenario())


def test_C2_a_start_at_a_later_time_and_a_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            at_ms = CLOCK.now_ms() + 1_500
            assert (await by_rows.ask("greets", input='["a"]', instance_id="later", start_at_ms=at_ms))[0] == "ACCEPTED"
            assert (await by_rows.ask("sleeps", instance_id="short", deadline_after_ms=300))[0] == "ACCEPTED"
            with pytest.raises(hf.WorkflowFailed, match="deadline"):
                await engine.get("short").result(timeout=20)
            assert await engine.get("later").result(timeout=20) == "a"
            assert CLOCK.now_ms() >= at_ms - 50
            for wrong in (0, -5):
                state, refusal = await by_rows.ask("sleeps", deadline_after_ms=wrong)
                assert state == "REFUSED"
                assert "deadline_after_ms" in (refusal or "")
            sound(path)

    together(scenario())


def test_C2_an_event_and_a_cancel_by_rows(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            await engine.start(waits, "a", id="it")
            await engine.start(sleeps, id="long")
            event = {"kind": "event", "instance_id": "it", "event_name": "go", "input": "7"}
            assert await by_rows.ask(request_id="once", **event) == ("ACCEPTED", None)
            assert await engine.get("it").result(timeout=20) == "a 7"
            state, refusal = await by_rows.ask(**event)
            assert state == "REFUSED"
            assert "COMPLETED" in (refusal or "")
            assert await by_rows.ask(kind="cancel", instance_id="long", input='"enough"') == ("ACCEPTED", None)
            with pytest.raises(hf.WorkflowCancelled):
                await engine.get("long").result(timeout=20)
            for columns in (
                {"kind": "event", "instance_id": "nobody", "event_name": "go"},
                {"kind": "event", "instance_id": "it"},
                {"kind": "event", "event_name": "go"},
                {"kind": "cancel", "instance_id": "nobody"},
                {"kind": "cancel"},
                {"kind": "cancel", "instance_id": "it"},
            ):
                state, refusal = await by_rows.ask(**columns)
                assert (state, bool(refusal)) == ("REFUSED", True)
            sound(path)

    together(scenario())


def test_C3_a_manual_request_is_a_trace(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL):
            assert await by_rows.ask("greets", input='["a"]', manual=True) == ("TRACE", None)
            assert await by_rows.ask("unknown", manual=True) == ("TRACE", None)
            assert rows(path, "SELECT count(*) FROM instances") == [(0,)]

    together(scenario())


def test_C7_a_request_stays_new_until_a_worker_has_the_workflow(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            waiting = by_rows.request("elsewhere", instance_id="it")
            for _ in range(3):
                assert (await by_rows.ask("greets", input='["a"]'))[0] == "ACCEPTED", "others are not delayed"
            await asyncio.sleep(1.2)
            assert by_rows.answer_to(waiting) == ("NEW", None)
            async with engine_of(path, elsewhere):
                assert await until_result(engine, "it") == "elsewhere"
            assert by_rows.answer_to(waiting)[0] == "ACCEPTED"

    together(scenario())


async def until_result(engine: hf.Engine, name: str) -> Any:
    while True:
        try:
            return await engine.get(name).result(timeout=20)
        except hf.InstanceNotFound:
            await asyncio.sleep(0.05)


def many(path: Path, count: int, bound_seconds: float) -> None:
    """Insert many requests at once. All are handled."""

    async def scenario() -> None:
        async with engine_of(path, *ALL):
            started_ms = CLOCK.elapsed_ms()
            for first in range(0, count, 1_000):
                values = ", ".join(f"('r{number}', 'greets', '[\"a\"]')" for number in range(first, first + 1_000))
                rows(path, f"INSERT INTO requests (request_id, workflow, input) VALUES {values}")  # noqa: S608
            while rows(path, "SELECT count(*) FROM requests WHERE state <> 'ACCEPTED'") != [(0,)]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert CLOCK.elapsed_ms() - started_ms < bound_seconds * 1_000
            assert rows(path, "SELECT count(*) FROM instances") == [(count,)]

    together(scenario(), bound_seconds + 30)


def test_C2_five_thousand_requests_at_once(tmp_path: Path) -> None:
    many(tmp_path / "it.db", 5_000, 60)


@pytest.mark.nightly
def test_C6_a_hundred_thousand_requests_at_once(tmp_path: Path) -> None:
    many(tmp_path / "it.db", 100_000, 1_200)
