"""Workflows that are started, and external activities that are run, by `sqlite3` and `psql` alone."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.contract.by_hand import ByHand, by_hand, postgres_by_hand
from tests.postgres.server import Place

import holdfast as hf
from holdfast.runtime.duties import contract_rows
from holdfast.runtime.platform import SystemClockAndIds

__all__ = ["by_hand"]
LIMIT_SECONDS = 30


@hf.activity(external=True, queue="gpu", heartbeat=30)
async def train(epochs: int) -> str:  # type: ignore[empty-body]
    """Runs in `sqlite3` or `psql`."""


@hf.workflow
async def doubles(number: int) -> int:
    return 2 * number


@hf.workflow
async def waits() -> str:
    return await hf.event("go", str)


@hf.workflow
async def trains(epochs: int) -> str:
    return await train(epochs)


def run(store: str, scenario: Callable[[hf.Engine], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            hf.Engine(store, workflows=[doubles, waits, trains], activities=[train]) as engine,
        ):
            await scenario(engine)

    asyncio.run(bounded())


async def sql(by_hand: ByHand, statements: str) -> None:
    await asyncio.to_thread(by_hand.run, statements)


async def until(by_hand: ByHand, query: str) -> list[dict[str, Any]]:
    """The rows of a query, once there are any."""
    while not (rows := await asyncio.to_thread(by_hand.rows, query)):  # noqa: ASYNC110 - another process commits
        await asyncio.sleep(0.02)
    return rows


async def answer(by_hand: ByHand, request: str) -> dict[str, Any]:
    [row] = await until(by_hand, f"SELECT * FROM request_status WHERE request_id = '{request}' AND state <> 'NEW'")  # noqa: S608
    return row


async def event_answer(by_hand: ByHand, event: str) -> dict[str, Any]:
    query = f"SELECT * FROM activity_event_status WHERE event_id = '{event}' AND state <> 'NEW'"  # noqa: S608
    [row] = await until(by_hand, query)
    return row


def test_C12_an_insert_starts_a_workflow_before_the_next_poll(by_hand: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the notification or the probe: the slow poll is turned off."""
    monkeypatch.setattr(contract_rows, "POLL_SECONDS", 3_600)

    async def scenario(engine: hf.Engine) -> None:
        await asyncio.sleep(0.5)
        await sql(by_hand, "INSERT INTO requests (request_id, workflow, input) VALUES ('r', 'doubles', '[4]');")
        found = await answer(by_hand, "r")
        assert (found["state"], found["refusal"], found["instance_id"]) == ("ACCEPTED", None, "r")
        assert await engine.get("r").result(timeout=LIMIT_SECONDS) == 8
        [row] = by_hand.rows("SELECT workflow_name, state FROM workflows")
        assert row == {"workflow_name": "doubles", "state": "COMPLETED"}

    run(by_hand.store, scenario)


def test_C2_events_and_cancels_are_inserted(by_hand: ByHand) -> None:
    async def scenario(engine: hf.Engine) -> None:
        for name in ("a", "b"):
            await engine.start(waits, id=name)
        await sql(
            by_hand,
            "INSERT INTO requests (request_id, kind, instance_id, event_name, input) "
            "VALUES ('e', 'event', 'a', 'go', '\"now\"'); "
            "INSERT INTO requests (request_id, kind, instance_id) VALUES "
            "('c', 'cancel', 'b'), ('d', 'cancel', 'none');",
        )
        assert await engine.get("a").result(timeout=LIMIT_SECONDS) == "now"
        with pytest.raises(hf.WorkflowCancelled):
            await engine.get("b").result(timeout=LIMIT_SECONDS)
        assert [(await answer(by_hand, name))["state"] for name in ("e", "c", "d")] == [
            *("ACCEPTED", "ACCEPTED", "REFUSED"),
        ]

    run(by_hand.store, scenario)


@pytest.mark.parametrize("values", ["'doubles', '[\"four\"]'", "'doubles', '[4'", "'doubles', '[1, 2]'", "NULL, '[]'"])
def test_C6_bad_input_is_refused_with_a_sentence(by_hand: ByHand, values: str) -> None:
    async def scenario(engine: hf.Engine) -> None:
        await sql(
            by_hand,
            f"INSERT INTO requests (request_id, workflow, input) VALUES ('bad', {values}); "  # noqa: S608
            "INSERT INTO requests (request_id, workflow, input) VALUES ('good', 'doubles', '[4]');",
        )
        found = await answer(by_hand, "bad")
        assert found["state"] == "REFUSED"
        assert len(found["refusal"]) > 10
        assert (await answer(by_hand, "good"))["state"] == "ACCEPTED"
        assert await engine.get("good").result(timeout=LIMIT_SECONDS) == 8

    run(by_hand.store, scenario)


def test_C4_an_external_activity_is_run_by_inserts(by_hand: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_rows, "POLL_SECONDS", 3_600)

    async def scenario(engine: hf.Engine) -> None:
        handle = await engine.start(trains, 3, id="it")
        [row] = await until(by_hand, "SELECT * FROM open_activities WHERE queue = 'gpu'")
        assert (row["activity_name"], row["workflow_exec_id"], row["input"]) == ("train", "it", '{"epochs":3}')
        assert (row["heartbeat_ms"], row["attempt"], row["responses"]) == (30_000, 1, None)
        exec_id = row["activity_exec_id"]
        for event, transition, payload, state in (
            ("queued", "QUEUED", "NULL", "APPLIED"),
            ("running", "RUNNING", "NULL", "APPLIED"),
            ("beat", "HEARTBEAT", "'{\"epoch\": 1}'", "APPLIED"),
            ("bad", "COMPLETED", "'17'", "REFUSED"),
            ("done", "COMPLETED", "'\"model\"'", "APPLIED"),
            ("late", "HEARTBEAT", "NULL", "REFUSED"),
        ):
            await sql(
                by_hand,
                "INSERT INTO activity_events (event_id, activity_exec_id, transition, payload, claim) "  # noqa: S608
                f"VALUES ('{event}', '{exec_id}', '{transition}', {payload}, 'me') ON CONFLICT DO NOTHING;",
            )
            found = await event_answer(by_hand, event)
            assert (found["state"], found["cancel_requested"]) == (state, False), found
        assert await handle.result(timeout=LIMIT_SECONDS) == "model"
        assert by_hand.rows("SELECT * FROM open_activities") == []
        [attempt] = by_hand.rows("SELECT state, activity_name, cancel_requested FROM activities")
        assert attempt == {"state": "COMPLETED", "activity_name": "train", "cancel_requested": False}

    run(by_hand.store, scenario)


def test_C4_psql_runs_an_activity_by_functions_and_clients_are_notified(postgres: Place) -> None:
    hand = postgres_by_hand(postgres)

    async def scenario(engine: hf.Engine) -> None:
        async with await psycopg.AsyncConnection.connect(postgres.server, autocommit=True) as listener:
            for subject in ("requests", "activity_events", "open_activities"):
                await listener.execute(SQL("LISTEN {}").format(Identifier(f"{postgres.schema}_{subject}")))
            heard = listener.notifies(timeout=LIMIT_SECONDS)

            async def notified(subject: str, payload: str) -> None:
                message = await anext(heard)
                assert (message.channel, message.payload) == (f"{postgres.schema}_{subject}", payload)

            await sql(hand, "SELECT start_workflow('trains', '[3]', 'it', 'r');")
            await notified("requests", "r")
            await notified("open_activities", "gpu")
            [row] = hand.rows("SELECT activity_exec_id AS id FROM open_activities")
            await sql(hand, f"SELECT report('{row['id']}', 'RUNNING', NULL, NULL, event_id => 'run');")
            await notified("activity_events", "run")
            done = f"SELECT report('{row['id']}', 'COMPLETED', '\"model\"', NULL, event_id => 'done');"
            await sql(hand, done)
            await notified("activity_events", "done")
            await heard.aclose()
        assert await engine.get("it").result(timeout=LIMIT_SECONDS) == "model"

    run(postgres.url, scenario)


async def seen(client: psycopg.AsyncConnection, instance: str) -> None:
    query = "SELECT 1 FROM workflows WHERE workflow_exec_id = %s"
    while not await (await client.execute(query, (instance,))).fetchall():  # noqa: ASYNC110 - another process commits
        await asyncio.sleep(0.001)


def test_C12_a_start_by_sql_is_taken_in_milliseconds_on_postgresql(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract_rows, "POLL_SECONDS", 3_600)
    clock = SystemClockAndIds().elapsed_precise_ms

    async def scenario(engine: hf.Engine) -> None:
        times: list[float] = []
        async with await psycopg.AsyncConnection.connect(postgres.server, autocommit=True) as client:
            await client.execute(SQL("SET search_path = {}").format(Identifier(postgres.schema)))
            await asyncio.sleep(0.5)
            for number in range(20):
                before = clock()
                await client.execute("SELECT start_workflow('doubles', %s, %s)", (f"[{number}]", f"it-{number}"))
                await seen(client, f"it-{number}")
                times.append(clock() - before)
            assert await engine.get("it-19").result(timeout=LIMIT_SECONDS) == 38
        assert sorted(times)[len(times) // 2] < 150, times

    run(postgres.url, scenario)


def test_C2_rows_that_were_inserted_while_no_worker_ran_are_handled(by_hand: ByHand) -> None:
    async def nothing(_: hf.Engine) -> None:
        """The tables are made."""

    async def scenario(_: hf.Engine) -> None:
        assert (await answer(by_hand, "r"))["state"] == "ACCEPTED"

    run(by_hand.store, nothing)
    by_hand.run("INSERT INTO requests (request_id, workflow, input) VALUES ('r', 'doubles', '[4]');")
    run(by_hand.store, scenario)
