"""External activities: an executor that only inserts rows claims, runs and reports attempts (C4, A1, A2, A6, L8)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.report_cells import CELLS

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.activity_events import ReportKind, ReportState
from holdfast.core.lifecycle import AttemptState

LARGE = "ä" * 100_000
SOON = hf.Retry(attempts=3, initial=0.001, jitter=False, non_retryable=("Declined",))


@hf.activity(external=True, queue="gpu", heartbeat=60, start_to_close=600, retry=SOON, max_claims=3)
async def train(text: str) -> dict[str, int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=60, retry=SOON)
def quotes(count: int) -> AsyncIterator[int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=0.3, retry=hf.Retry(attempts=1))
async def hurry() -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, start_to_close=600)
async def echo(text: str) -> str: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(text: str) -> Any:
    try:
        return await train(text)
    except Exception as error:  # noqa: BLE001 - the result says which
        return f"{type(error).__name__}: {error}"


@hf.workflow
async def sums(count: int) -> list[int]:
    return [value async for value in quotes(count)]


@hf.workflow
async def hurries() -> str:
    try:
        return str(await hurry())
    except Exception as error:  # noqa: BLE001 - the result says which
        return type(error).__name__


@hf.workflow
async def echoes(text: str) -> str:
    return await echo(text)


@hf.workflow
async def parent(text: str) -> str:
    return str(await (await hf.start(trains, text, id="child")).result())


@hf.workflow
async def continues(times: int) -> str:
    waiting = asyncio.ensure_future(echo("never"))
    await hf.event("go", int)
    del waiting
    if times:
        hf.continue_as_new(times - 1)
    return "done"


ALL = (trains, sums, hurries, echoes, parent, continues, train, quotes, hurry, echo)


def engine(path: Path, **options: Any) -> hf.Engine:
    return engine_of(path, *ALL, **options)


def sound(path: Path) -> None:
    check_tables(path)
    assert [problem.text for problem in audit(path)] == []


def test_C4_an_executor_claims_runs_and_completes_by_rows(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            statement = "SELECT activity_name, workflow_name, queue, input, attempt, heartbeat_ms FROM open_activities"
            assert rows(path, statement) == [("train", "trains", "gpu", '{"text":"a"}', 1, 60_000)]
            for transition in ("QUEUED", "PREPARING", "RUNNING", "HEARTBEAT"):
                assert await by_rows.report(exec_id, transition, claim="c") == ("APPLIED", None)
                assert by_rows.offers() == []
            state, refusal = await by_rows.report(exec_id, "COMPLETED", claim="c", payload='{"a": "x"}')
            assert state == "REFUSED"
            assert "a" in (refusal or "")
            assert by_rows.attempts("it") == [("RUNNING", 889)], "a value that does not fit leaves it running"
            assert await by_rows.report(exec_id, "COMPLETED", claim="c", payload='{"a": 1}') == ("APPLIED", None)
            assert await handle.result(timeout=20) == {"a": 1}
            state, refusal = await by_rows.report(exec_id, "COMPLETED", claim="c", payload='{"a": 2}')
            assert state == "REFUSED"
            assert "first result stands" in (refusal or "")
            assert await by_rows.report(exec_id, "NOTE", payload='"still here"') == ("APPLIED", None)
            sound(path)

    together(scenario())


LEADING = {
    "READY": (),
    "QUEUED": ("QUEUED",),
    "PREPARING": ("QUEUED", "PREPARING"),
    "RUNNING": ("RUNNING",),
    "CANCELLED_RUNNING": ("RUNNING", "CANCEL"),
    "CANCELLED": ("RUNNING", "CANCEL", "STOPPED"),
    "FAILED": ("RUNNING", "FAILED"),
    "COMPLETED": ("RUNNING", "COMPLETED"),
}
FINAL_FAILURE = '{"type": "Declined", "message": "no", "retryable": false}'


def test_A1_every_reportable_cell_of_the_table_by_an_inserted_row(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            cells = [(state, kind) for state in LEADING for kind in ReportKind]
            for number in range(len(cells)):
                await it.start(sums, 1, id=f"i{number:03}")
            await until(lambda: len(by_rows.offers()) == len(cells))
            exec_ids = by_rows.offers()
            asked: dict[tuple[AttemptState, ReportKind], str] = {}
            for exec_id, (state, kind) in zip(exec_ids, cells, strict=True):
                for leading in LEADING[state]:
                    by_rows.insert(exec_id, leading, claim="c", error=FINAL_FAILURE)
                asked[AttemptState(state), kind] = by_rows.insert(
                    exec_id,
                    kind,
                    claim="c",
                    error=FINAL_FAILURE,
                    payload="1" if kind is ReportKind.RESPONSE else None,
                )
            for cell, event_id in asked.items():
                found, refusal = await by_rows.answered(event_id)
                assert found == CELLS[cell], (cell, refusal)
                assert (refusal is None) == (found == "APPLIED"), cell
                assert found != "WAITING" or refusal == "TOO EARLY"
            sound(path)

    together(scenario(), 60)


def test_A7_a_timed_out_attempt_takes_notes_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(hurries, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == "ActivityTimedOut"
            for kind in ReportKind:
                found, _ = await by_rows.report(exec_id, kind)
                assert found == CELLS[AttemptState.TIMED_OUT, kind]
            sound(path)

    together(scenario(), 60)


def test_C9_L8_a_released_claim_is_offered_again_and_a_stale_claimant_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(trains, "a", id="it")
            old = ""
            for digits in (899, 799, 699):
                exec_id = await by_rows.offer("it", other_than=old)
                assert (await by_rows.report(exec_id, "QUEUED", claim="c"))[0] == "APPLIED"
                assert by_rows.attempts("it") == [("QUEUED", digits)]
                if old:
                    found, refusal = await by_rows.report(old, "RUNNING", claim="c")
                    assert found == "REFUSED"
                    assert "was released" in (refusal or "")
                    assert by_rows.attempts("it") == [("QUEUED", digits)]
                early = by_rows.insert(exec_id, "COMPLETED", claim="c", payload="{}")
                assert (await by_rows.report(exec_id, "RELEASE", claim="c"))[0] == "APPLIED"
                assert (await by_rows.answered(early))[0] == "REFUSED"
                old = exec_id
            assert (await handle.result(timeout=20)).startswith("ClaimsExhausted: train was claimed 3 times")
            assert by_rows.offers() == []
            [(failure,)] = rows(path, "SELECT failure FROM attempts")
            assert json.loads(bytes(failure))["type"].endswith("ClaimsExhausted")
            sound(path)

    together(scenario())


@pytest.mark.parametrize(
    ("error", "attempts", "text"),
    [
        ('{"type": "Busy", "message": "later"}', 3, "later"),
        ('{"type": "Declined", "message": "no"}', 1, "no"),
        ('{"type": "Busy", "message": "never", "retryable": false}', 1, "never"),
        ("plain text \x01 {", 3, "plain text"),
        ("[1, 2]", 3, "[1, 2]"),
        ('{"code": 28}', 3, '{"code": 28}'),
        ('{"code": 28, "retryable": false}', 1, '{"code": 28'),
        (None, 3, "the executor reported a failure"),
    ],
)
def test_G13_a_failure_is_retried_by_the_policy(tmp_path: Path, error: str | None, attempts: int, text: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(trains, "a", id="it")
            old = ""
            for _ in range(attempts):
                exec_id = await by_rows.offer("it", other_than=old)
                assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
                assert await by_rows.report(exec_id, "FAILED", error=error) == ("APPLIED", None)
                old = exec_id
            assert text in await handle.result(timeout=20)
            assert [state for state, _ in by_rows.attempts("it")] == ["FAILED"] * attempts
            sound(path)

    together(scenario())


def test_L15_responses_are_delivered_in_order_and_wait_for_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(sums, 3, id="it")
            exec_id = await by_rows.offer("it")
            early = [by_rows.insert(exec_id, "RESPONSE", payload=str(number), claim="c") for number in (1, 2)]
            assert [await by_rows.answered(one) for one in early] == [("WAITING", "TOO EARLY")] * 2
            assert (await by_rows.report(exec_id, "QUEUED", claim="c"))[0] == "APPLIED"
            assert (await by_rows.report(exec_id, "RUNNING", claim="c"))[0] == "APPLIED"
            assert [by_rows.answer(one)[0] for one in early] == ["APPLIED"] * 2
            assert (await by_rows.report(exec_id, "RESPONSE", payload='"x"', claim="c"))[0] == "REFUSED"
            assert (await by_rows.report(exec_id, "RESPONSE", payload="3", claim="c"))[0] == "APPLIED"
            found, refusal = await by_rows.report(exec_id, "COMPLETED", payload="4", claim="c")
            assert found == "REFUSED"
            assert "RESPONSE" in (refusal or "")
            assert (await by_rows.report(exec_id, "COMPLETED", claim="c"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == [1, 2, 3]
            handle = await it.start(trains, "a", id="other")
            exec_id = await by_rows.offer("other")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            found, refusal = await by_rows.report(exec_id, "RESPONSE", payload="1")
            assert found == "REFUSED"
            assert "AsyncIterator" in (refusal or "")
            sound(path)

    together(scenario())


def test_A6_the_answer_to_a_heartbeat_carries_the_cancel(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            before = by_rows.insert(exec_id, "HEARTBEAT", payload='{"step": 1}')
            assert (await by_rows.answered(before))[0] == "APPLIED"
            assert not by_rows.is_told_to_cancel(before)
            await handle.cancel_activity("train")
            after = by_rows.insert(exec_id, "HEARTBEAT")
            assert (await by_rows.answered(after))[0] == "APPLIED"
            assert by_rows.is_told_to_cancel(after)
            assert (await by_rows.report(exec_id, "STOPPED"))[0] == "APPLIED"
            assert "ActivityCancelled" in await handle.result(timeout=20)
            assert by_rows.attempts("it") == [("CANCELLED", 889)]
            sound(path)

    together(scenario())


@pytest.mark.parametrize("way", ["cancel", "terminate", "continue"])
def test_A1_an_attempt_whose_workflow_ends_meanwhile_is_asked_to_stop(tmp_path: Path, way: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(continues, 1, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            gap = by_rows.insert(exec_id, "HEARTBEAT", sequence=5)
            assert (await by_rows.answered(gap))[0] == "WAITING"
            if way == "cancel":
                await handle.cancel()
            elif way == "terminate":
                await handle.terminate("a test")
            else:
                await handle.raise_event("go", 1)
            await until(lambda: by_rows.attempts("it")[0] == ("CANCELLED_RUNNING", 889))
            beat = by_rows.insert(exec_id, "HEARTBEAT")
            assert (await by_rows.answered(beat))[0] == "APPLIED"
            assert by_rows.is_told_to_cancel(beat)
            assert (await by_rows.report(exec_id, "STOPPED"))[0] == "APPLIED"
            assert by_rows.attempts("it")[0] == ("CANCELLED", 889)
            assert (await by_rows.answered(gap))[0] == "REFUSED"
            sound(path)

    together(scenario())


def test_L10_waiting_rows_of_a_workflow_that_ended_are_refused_within_seconds(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            early = by_rows.insert(exec_id, "COMPLETED", payload="{}")
            assert (await by_rows.answered(early))[0] == "WAITING"
            await handle.terminate("a test")
            async with asyncio.timeout(5):
                await until(lambda: by_rows.answer(early)[0] == "REFUSED")
            assert by_rows.attempts("it") == [("CANCELLED", 999)]

    together(scenario())


def test_C4_large_inputs_and_results(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(echoes, LARGE, id="it")
            exec_id = await by_rows.offer("it")
            [(given,)] = rows(path, "SELECT input FROM open_activities")
            assert json.loads(given) == {"text": LARGE}
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            assert (await by_rows.report(exec_id, "COMPLETED", payload=json.dumps(LARGE)))[0] == "APPLIED"
            assert await handle.result(timeout=20) == LARGE
            sound(path)

    together(scenario())


def test_C4_the_external_activity_of_a_child(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it:
            handle = await it.start(parent, "a", id="it")
            exec_id = await by_rows.offer("child")
            for transition in ("RUNNING", "COMPLETED"):
                assert (await by_rows.report(exec_id, transition, payload="{}"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == "{}"
            sound(path)

    together(scenario())


def test_C7_two_workers_handle_each_row_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine(path) as it, engine(path):
            handles = [await it.start(sums, 20, id=f"i{number:02}") for number in range(10)]
            await until(lambda: len(by_rows.offers()) == len(handles))
            exec_ids = by_rows.offers()
            for exec_id in exec_ids:
                by_rows.insert(exec_id, "RUNNING")
            for number in range(20):
                for exec_id in exec_ids:
                    by_rows.insert(exec_id, "RESPONSE", payload=str(number))
            for exec_id in exec_ids:
                by_rows.insert(exec_id, "COMPLETED")
            for handle in handles:
                assert await handle.result(timeout=30) == list(range(20))
            assert rows(path, "SELECT count(*) FROM activity_events WHERE state <> 'APPLIED'") == [(0,)]
            sound(path)

    together(scenario(), 60)


def test_C4_the_report_states_are_those_of_the_documented_column() -> None:
    assert set(ReportState) == {"NEW", "APPLIED", "WAITING", "DUPLICATE", "REFUSED"}
