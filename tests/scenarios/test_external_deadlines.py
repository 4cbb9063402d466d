"""Deadlines of external attempts: expiry never overtakes a report, and is left to workers with the activity (A5)."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.held import store_at
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.runtime.platform import SystemClockAndIds

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
CLOCK = SystemClockAndIds()
ONCE = hf.Retry(attempts=1)
HEARTBEAT_SECONDS = 0.6


@hf.activity(external=True, heartbeat=90, retry=ONCE)
async def train() -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, start_to_close=7_200, retry=ONCE, claim_timeout=0.5, max_claims=2)
async def render() -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=HEARTBEAT_SECONDS, retry=ONCE)
async def hurry() -> int: ...  # type: ignore[empty-body]


@hf.activity
async def other() -> int:
    return 1


async def ended(call: Any) -> str:
    try:
        return str(await call)
    except Exception as error:  # noqa: BLE001 - the result says which
        return type(error).__name__


@hf.workflow
async def trains() -> str:
    return await ended(train())


@hf.workflow
async def renders() -> str:
    return await ended(render())


@hf.workflow
async def hurries() -> str:
    return await ended(hurry())


@hf.workflow
async def gives_up() -> str:
    waiting = asyncio.ensure_future(render())
    await hf.event("go", int)
    waiting.cancel()
    await hf.event("end", int)
    return "done"


@hf.workflow
async def unrelated() -> int:
    return await other()


ALL = (trains, renders, hurries, gives_up, train, render, hurry)
TIMES = ("scheduled_at_ms", "available_at_ms", "started_at_ms", "heartbeat_at_ms", "expires_at_ms")


def an_hour_passes(path: Path) -> None:
    """Everything that happened so far was an hour earlier."""
    changes = ", ".join(f"{column} = {column} - {HOUR_MS}" for column in TIMES)
    rows(path, f"UPDATE attempts SET {changes}")  # noqa: S608


def sound(path: Path) -> None:
    check_tables(path)
    assert [problem.text for problem in audit(path)] == []


def test_A5_workers_that_were_down_for_an_hour_find_the_heartbeats_and_the_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            for name in ("alive", "silent"):
                await engine.start(trains, id=name)
                assert (await by_rows.report(await by_rows.offer(name), "RUNNING"))[0] == "APPLIED"
        exec_ids = dict(rows(path, "SELECT number, exec_id FROM offers"))
        alive, silent = (exec_ids[number] for number in sorted(exec_ids))
        an_hour_passes(path)
        begun_ms = CLOCK.now_ms() - HOUR_MS
        for minute in range(1, 60):
            by_rows.insert(alive, "HEARTBEAT", inserted_at_ms=begun_ms + minute * MINUTE_MS)
            if minute != 30:
                by_rows.insert(silent, "HEARTBEAT", inserted_at_ms=begun_ms + minute * MINUTE_MS)
        late = by_rows.insert(silent, "COMPLETED", payload="2")
        by_rows.insert(alive, "COMPLETED", payload="1")
        async with engine_of(path, *ALL) as engine:
            assert await engine.get("alive").result(timeout=20) == "1"
            assert await engine.get("silent").result(timeout=20) == "ActivityTimedOut"
        assert by_rows.answer(late)[0] == "REFUSED"
        assert rows(path, "SELECT count(*) FROM activity_events WHERE state = 'APPLIED'") == [(2 + 59 + 29 + 1,)]
        sound(path)

    together(scenario(), 60)


def test_A5_only_a_worker_with_the_activity_expires_an_attempt_that_has_new_rows(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            for name in ("reported", "silent"):
                await engine.start(trains, id=name)
                assert (await by_rows.report(await by_rows.offer(name), "RUNNING"))[0] == "APPLIED"
        an_hour_passes(path)
        exec_ids = dict(rows(path, "SELECT number, exec_id FROM offers"))
        result = by_rows.insert(
            exec_ids[min(exec_ids)], "COMPLETED", payload="1", inserted_at_ms=CLOCK.now_ms() - HOUR_MS
        )
        store = store_at(path)
        reads: list[str] = []
        read = store.reports_of

        async def counted(exec_id: str, **options: Any) -> Any:
            reads.append(exec_id)
            return await read(exec_id, **options)

        vars(store)["reports_of"] = counted
        async with engine_of(store, unrelated, other) as engine:
            await by_rows.reached("silent", "TIMED_OUT")
            assert await engine.run(unrelated, id="other") == 1
            await asyncio.sleep(2.2)
            assert by_rows.attempts("reported") == [("RUNNING", 889)]
            assert by_rows.answer(result)[0] == "NEW"
            assert len(reads) < 20, "it is left until the next round, not retried at once"
        async with engine_of(path, *ALL) as engine:
            assert await engine.get("reported").result(timeout=20) == "1"
            assert await engine.get("silent").result(timeout=20) == "ActivityTimedOut"
        sound(path)

    together(scenario(), 60)


def test_C5_attempts_that_are_left_to_others_do_not_hide_the_ones_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["holdfast.runtime.duties.expiry"], "ATTEMPTS", 2)

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        names = [f"left{number}" for number in range(4)]
        async with engine_of(path, *ALL) as engine:
            for name in (*names, "silent"):
                await engine.start(trains, id=name)
                assert (await by_rows.report(await by_rows.offer(name), "RUNNING"))[0] == "APPLIED"
        an_hour_passes(path)
        for _, exec_id in sorted(rows(path, "SELECT number, exec_id FROM offers"))[:4]:
            by_rows.insert(exec_id, "HEARTBEAT")
        async with engine_of(path, unrelated, other):
            await by_rows.reached("silent", "TIMED_OUT")
            for name in names:
                assert by_rows.attempts(name) == [("RUNNING", 889)]

    together(scenario(), 60)


def test_L8_claims_that_time_out_exhaust_the_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(renders, id="it")
            first = await by_rows.offer("it")
            assert (await by_rows.report(first, "QUEUED", claim="c"))[0] == "APPLIED"
            second = await by_rows.offer("it", other_than=first)
            assert by_rows.attempts("it") == [("READY", 899)]
            assert (await by_rows.report(first, "RUNNING", claim="c"))[0] == "REFUSED"
            assert (await by_rows.report(second, "PREPARING", claim="d"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == "ClaimsExhausted"
            sound(path)

    together(scenario())


def test_A5_heartbeats_keep_a_claim_and_a_run_alive(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(hurries, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING", claim="c"))[0] == "APPLIED"
            begun_ms = CLOCK.elapsed_ms()
            while CLOCK.elapsed_ms() - begun_ms < 2_500 * HEARTBEAT_SECONDS:
                assert (await by_rows.report(exec_id, "HEARTBEAT", claim="c"))[0] == "APPLIED"
            assert (await by_rows.report(exec_id, "COMPLETED", claim="c", payload="1"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == "1"
            sound(path)

    together(scenario())


def test_A6_a_cancelled_executor_that_is_silent_for_a_minute_has_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(gives_up, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            await handle.raise_event("go", 1)
            await by_rows.reached("it", "CANCELLED_RUNNING")
            [(left_ms,)] = rows(path, "SELECT expires_at_ms - ? FROM attempts", CLOCK.now_ms())
            assert 50_000 < left_ms <= MINUTE_MS
            an_hour_passes(path)
            await by_rows.reached("it", "CANCELLED")
            assert (await by_rows.report(exec_id, "COMPLETED", payload="1"))[0] == "REFUSED"
            await handle.raise_event("end", 1)
            assert await handle.result(timeout=20) == "done"
            sound(path)

    together(scenario())


def test_C2_a_request_is_handled_while_another_instance_is_blocked(tmp_path: Path) -> None:
    """The executor of a blocked instance reports, and the result is there when the instance goes on."""

    @hf.workflow(name="trains")
    async def broken() -> str:
        await asyncio.sleep(1)
        return "another history"

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            await engine.start(trains, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
        async with engine_of(path, broken, train):
            assert (await by_rows.report(exec_id, "COMPLETED", payload="7"))[0] == "APPLIED"
            await until(lambda: rows(path, "SELECT state FROM instances") == [("BLOCKED",)])
            assert by_rows.attempts("it") == [("COMPLETED", 889)]
        async with engine_of(path, *ALL) as engine:
            assert await engine.get("it").result(timeout=20) == "7"
        sound(path)

    together(scenario())


def many(path: Path, count: int, bound_seconds: float) -> None:
    """Insert many reports of one attempt at once, with a few of another one behind them."""

    async def scenario() -> None:
        by_rows = ByRows(path)
        async with engine_of(path, *ALL) as engine:
            for name in ("busy", "calm"):
                await engine.start(trains, id=name)
            busy, calm = await by_rows.offer("busy"), await by_rows.offer("calm")
            begun_ms = CLOCK.elapsed_ms()
            by_rows.insert(busy, "RUNNING")
            for first in range(0, count, 1_000):
                values = ", ".join(f"('h{number}', '{busy}', 'HEARTBEAT')" for number in range(first, first + 1_000))
                columns = "event_id, activity_exec_id, transition"
                rows(path, f"INSERT INTO activity_events ({columns}) VALUES {values}")  # noqa: S608
                await asyncio.sleep(0)
            by_rows.insert(busy, "COMPLETED", payload="1")
            for transition in ("RUNNING", "COMPLETED"):
                by_rows.insert(calm, transition, payload="2")
            assert await engine.get("busy").result(timeout=bound_seconds) == "1"
            assert await engine.get("calm").result(timeout=bound_seconds) == "2"
            assert CLOCK.elapsed_ms() - begun_ms < bound_seconds * 1_000
            counts = rows(path, "SELECT state, count(*) FROM activity_events GROUP BY state")
            assert counts == [("APPLIED", count + 4)]
        sound(path)

    together(scenario(), bound_seconds + 30)


def test_C2_five_thousand_reports_of_one_attempt_at_once(tmp_path: Path) -> None:
    many(tmp_path / "it.db", 5_000, 60)


@pytest.mark.nightly
def test_C2_a_hundred_thousand_reports_of_one_attempt_at_once(tmp_path: Path) -> None:
    many(tmp_path / "it.db", 100_000, 600)
