"""External activities of a PAUSED instance: they are hidden, and no report takes one out of READY (R21)."""

from pathlib import Path

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.support import check_tables, engine_of, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit


@hf.activity(external=True, queue="gpu", heartbeat=60, schedule_to_close=600, retry=hf.Retry(attempts=1))
async def train(text: str) -> str: ...  # type: ignore[empty-body]


@hf.activity(external=True, start_to_close=600, retry=hf.Retry(attempts=1), on_exhausted="pause")
async def render(text: str) -> str: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(text: str) -> str:
    try:
        return await train(text)
    except hf.ActivityCancelled:
        return "cancelled"


@hf.workflow
async def renders(text: str) -> str:
    return await render(text)


def sound(path: Path) -> None:
    check_tables(path)
    assert [problem.text for problem in audit(path)] == []


@pytest.mark.parametrize("transition", ["QUEUED", "PREPARING", "RUNNING"])
def test_R21_a_report_does_not_take_a_withheld_attempt(tmp_path: Path, transition: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, trains, train) as engine:
            handle = await engine.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            await handle.pause()
            assert by_rows.offers() == []
            state, refusal = await by_rows.report(exec_id, transition, claim="c")
            assert state == "REFUSED"
            assert "its instance is PAUSED" in (refusal or "")
            assert await by_rows.report(exec_id, "NOTE", payload='"a note"') == ("APPLIED", None)
            sound(path)
            await handle.resume()
            assert await by_rows.offer("it") == exec_id
            assert await by_rows.report(exec_id, "RUNNING", claim="d") == ("APPLIED", None)
            assert await by_rows.report(exec_id, "COMPLETED", claim="d", payload='"done"') == ("APPLIED", None)
            assert await handle.result(timeout=20) == "done"
            sound(path)

    together(scenario())


def test_R20_a_claimed_attempt_continues_and_a_released_one_is_withheld(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, trains, train) as engine:
            handle = await engine.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            assert await by_rows.report(exec_id, "QUEUED", claim="c") == ("APPLIED", None)
            await handle.pause()
            assert await by_rows.report(exec_id, "HEARTBEAT", claim="c") == ("APPLIED", None)
            assert await by_rows.report(exec_id, "RELEASE", claim="c") == ("APPLIED", None)
            assert by_rows.offers() == []
            sound(path)
            await handle.resume()
            again = await by_rows.offer("it")
            assert again != exec_id
            assert await by_rows.report(again, "RUNNING", claim="d") == ("APPLIED", None)
            await handle.pause()
            assert await by_rows.report(again, "COMPLETED", claim="d", payload='"late"') == ("APPLIED", None)
            assert (await handle.describe()).state == "PAUSED"
            sound(path)
            await handle.resume()
            assert await handle.result(timeout=20) == "late"

    together(scenario())


def test_R21_a_cancel_is_applied(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, trains, train) as engine:
            handle = await engine.start(trains, "a", id="it")
            exec_id = await by_rows.offer("it")
            await handle.pause()
            assert await by_rows.report(exec_id, "CANCEL") == ("APPLIED", None)
            sound(path)
            await handle.resume()
            assert await handle.result(timeout=20) == "cancelled"

    together(scenario())


def test_R26_a_failed_executor_pauses_the_instance(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, renders, render) as engine:
            handle = await engine.start(renders, "a", id="it")
            exec_id = await by_rows.offer("it")
            assert await by_rows.report(exec_id, "RUNNING", claim="c") == ("APPLIED", None)
            assert await by_rows.report(exec_id, "FAILED", claim="c", error="no card") == ("APPLIED", None)
            described = await handle.describe()
            assert described.state == "PAUSED"
            assert "no card" in (described.pause_reason or "")
            assert by_rows.offers() == []
            sound(path)
            await handle.resume()
            again = await by_rows.offer("it")
            assert await by_rows.report(again, "RUNNING", claim="d") == ("APPLIED", None)
            assert await by_rows.report(again, "COMPLETED", claim="d", payload='"drawn"') == ("APPLIED", None)
            assert await handle.result(timeout=20) == "drawn"
            assert rows(path, "SELECT count(*) FROM attempts") == [(2,)]
            sound(path)

    together(scenario())
