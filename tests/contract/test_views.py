"""The views of the open contract: their columns, and what they show of attempts, instances and rows of clients."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.by_hand import ByHand, Refused, by_hand

import holdfast as hf

__all__ = ["by_hand"]

COLUMNS = {
    "open_activities": "activity_exec_id, activity_name, workflow_exec_id, workflow_name, queue, input, attempt, "
    "idempotency_key, responses, heartbeat_ms, start_to_close_ms, expires_at_ms",
    "activities": "workflow_exec_id, execution, activity_number, activity_name, attempt, state, ledger, queue, "
    "scheduled_at_ms, started_at_ms, closed_at_ms, heartbeat_at_ms, cancel_requested",
    "workflows": "workflow_exec_id, workflow_name, version, state, execution, collation_key, created_at_ms, "
    "closed_at_ms",
    "request_status": "request_id, instance_id, state, refusal, handled_at_ms",
    "activity_event_status": "event_id, state, refusal, cancel_requested, handled_at_ms",
}
"""As the specification lists them."""
LARGE = "ä" * 100_000
OFFER = """
    INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name)
    SELECT 'exec-' || activity, number, execution, activity, attempt, 1, name FROM attempts;
"""


@hf.activity(queue="gpu", heartbeat=30, start_to_close=600)
async def train(text: str) -> str:
    return hf.idempotency_key() if text else ""


@hf.activity(queue="gpu", schedule_to_close=3_600)
async def stream(number: int) -> AsyncIterator[int]:
    yield number


@hf.activity(queue="gpu", retry=hf.Retry(attempts=2, initial=3_600, maximum=3_600, jitter=False))
async def fail() -> None:
    raise ValueError("no")


@hf.workflow
async def trains(text: str) -> str:
    return await train(text)


@hf.workflow
async def streams() -> list[int]:
    return [number async for number in stream(7)]


@hf.workflow
async def retries() -> None:
    await fail()


async def start(store: str, *starts: tuple[Any, ...], queues: tuple[str, ...] = ("none",)) -> None:
    """Start workflows whose attempts stay READY."""
    async with hf.Engine(
        store, workflows=[trains, streams, retries], activities=[train, stream, fail], queues=queues
    ) as engine:
        for at, (workflow, *arguments) in enumerate(starts):
            await engine.start(workflow, *arguments, id=f"it-{at}")
        await asyncio.sleep(0.5)


def made(by_hand: ByHand, *starts: tuple[Any, ...], queues: tuple[str, ...] = ("none",)) -> None:
    asyncio.run(start(by_hand.store, *starts, queues=queues))


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_the_columns_of_the_specification(by_hand: ByHand, view: str) -> None:
    made(by_hand, (trains, "a"))
    by_hand.run(OFFER + "INSERT INTO requests (request_id) VALUES ('r');")  # noqa: S608
    by_hand.run("INSERT INTO activity_events (event_id, activity_exec_id, transition) VALUES ('e', 'x', 'NOTE');")
    [row] = by_hand.rows(f"SELECT * FROM {view}")  # noqa: S608
    assert list(row) == COLUMNS[view].split(", ")


def test_C4_open_activities_are_ready_attempts_with_a_current_offer(by_hand: ByHand) -> None:
    made(by_hand, (trains, "a"))
    assert by_hand.rows("SELECT * FROM open_activities") == [], "an attempt without an offer is for workers"
    by_hand.run(OFFER)
    [row] = by_hand.rows("SELECT * FROM open_activities")
    key = row.pop("idempotency_key")
    assert row == {
        "activity_exec_id": "exec-0",
        "activity_name": "train",
        "workflow_exec_id": "it-0",
        "workflow_name": "trains",
        "queue": "gpu",
        "input": '{"text":"a"}',
        "attempt": 1,
        "responses": None,
        "heartbeat_ms": 30_000,
        "start_to_close_ms": 600_000,
        "expires_at_ms": None,
    }
    by_hand.run("UPDATE offers SET withdrawn_at_ms = 1;")
    assert by_hand.rows("SELECT * FROM open_activities") == []
    by_hand.run("UPDATE offers SET withdrawn_at_ms = NULL; UPDATE attempts SET state = 'QUEUED';")
    assert by_hand.rows("SELECT * FROM open_activities") == []
    by_hand.run("UPDATE attempts SET state = 'READY';")
    assert asyncio.run(result(by_hand.store)) == key, "the key that the body would get from hf.idempotency_key()"


async def result(store: str) -> str:
    async with hf.Engine(store, workflows=[trains], activities=[train]) as engine:
        return str(await engine.get("it-0").result(timeout=30))


def test_a_retry_is_open_when_its_delay_is_over(by_hand: ByHand) -> None:
    made(by_hand, (retries,), queues=("gpu",))
    by_hand.run(OFFER.replace("FROM attempts", "FROM attempts WHERE state = 'READY'"))
    assert by_hand.rows("SELECT attempt FROM activities WHERE state = 'READY'") == [{"attempt": 2}]
    assert by_hand.rows("SELECT * FROM open_activities") == []
    by_hand.run("UPDATE attempts SET available_at_ms = available_at_ms - 3600000;")
    assert by_hand.rows("SELECT attempt FROM open_activities") == [{"attempt": 2}]


def test_a_large_input_is_in_the_view(by_hand: ByHand) -> None:
    made(by_hand, (trains, LARGE))
    by_hand.run(OFFER)
    [stored] = by_hand.rows("SELECT length(input) AS length FROM attempts")
    assert stored["length"] < 100, "it is stored in a table of its own"
    assert by_hand.rows("SELECT input FROM open_activities") == [{"input": f'{{"text":"{LARGE}"}}'}]


def test_responses_count_the_values_of_earlier_attempts_of_a_stream(by_hand: ByHand) -> None:
    made(by_hand, (streams,))
    by_hand.run(OFFER)
    [row] = by_hand.rows("SELECT responses, expires_at_ms FROM open_activities")
    assert row["responses"] == 0
    assert row["expires_at_ms"] > 0
    before, after = ("convert_from(options, 'UTF8')", "convert_to({}, 'UTF8')")
    text, packed = (before, after) if by_hand.is_postgres else ("CAST(options AS TEXT)", "CAST({} AS BLOB)")
    changed = packed.format(f"replace({text}, '\"delivered\":0', '\"delivered\":12')")
    by_hand.run(f"UPDATE attempts SET options = {changed};")  # noqa: S608
    assert by_hand.rows("SELECT responses FROM open_activities") == [{"responses": 12}]


@pytest.mark.parametrize("damage", ["'not json'", "'{\"heartbeat_ms\":'"])
def test_damaged_options_do_not_hide_the_other_rows(by_hand: ByHand, damage: str) -> None:
    made(by_hand, (trains, "a"), (trains, "b"))
    by_hand.run(OFFER.replace("activity, number", "number, number", 1))
    value = f"convert_to({damage}, 'UTF8')" if by_hand.is_postgres else f"CAST({damage} AS BLOB)"
    by_hand.run(f"UPDATE attempts SET options = {value} WHERE number = 1;")  # noqa: S608
    found = by_hand.rows("SELECT workflow_exec_id AS id, heartbeat_ms FROM open_activities ORDER BY 1")
    assert found == [{"id": "it-0", "heartbeat_ms": None}, {"id": "it-1", "heartbeat_ms": 30_000}]


@pytest.mark.parametrize("damage", ["00", "ff", "22c328", "22eda08022", "f4908080"])
def test_an_input_that_is_no_text_does_not_hide_the_other_rows(by_hand: ByHand, damage: str) -> None:
    if not by_hand.is_postgres:
        pytest.skip("SQLite does not check text")
    made(by_hand, (trains, "a"), (trains, "€𝄞"))
    by_hand.run(OFFER.replace("activity, number", "number, number", 1))
    by_hand.run(f"UPDATE attempts SET input = '\\x{damage}' WHERE number = 1;")  # noqa: S608
    found = by_hand.rows("SELECT workflow_exec_id AS id, input FROM open_activities ORDER BY 1")
    assert found == [{"id": "it-0", "input": None}, {"id": "it-1", "input": '{"text":"€𝄞"}'}]


def test_views_show_current_instances_and_cancel_requests(by_hand: ByHand) -> None:
    made(by_hand, (trains, "a"), (trains, "b"))
    ids = "SELECT workflow_exec_id AS id FROM {} ORDER BY 1"
    for view in ("activities", "workflows"):
        assert by_hand.rows(ids.format(view)) == [{"id": "it-0"}, {"id": "it-1"}]
    by_hand.run("UPDATE instances SET superseded_at_ms = 1 WHERE id = 'it-0';")
    for view in ("activities", "workflows"):
        assert by_hand.rows(ids.format(view)) == [{"id": "it-1"}]
    requested = "SELECT cancel_requested AS it FROM activities"
    assert by_hand.rows(requested) == [{"it": False}]
    for change in ("cancel_requested_at_ms = 5", "cancel_requested_at_ms = NULL, state = 'CANCELLED_RUNNING'"):
        by_hand.run(f"UPDATE attempts SET {change};")  # noqa: S608
        assert by_hand.rows(requested) == [{"it": True}]


def test_the_id_of_a_start_is_by_default_that_of_its_request(by_hand: ByHand) -> None:
    made(by_hand)
    by_hand.run(
        "INSERT INTO requests (request_id, kind, instance_id) VALUES ('a', 'start', NULL), ('b', 'start', 'i'), "
        "('c', 'event', 'i'), ('d', 'cancel', NULL);"
    )
    found = by_hand.rows("SELECT request_id, instance_id, state FROM request_status ORDER BY 1")
    assert [tuple(row.values()) for row in found] == [
        *(("a", "a", "NEW"), ("b", "i", "NEW"), ("c", "i", "NEW"), ("d", None, "NEW")),
    ]


def test_C2_a_repeated_insert_is_the_same_row(by_hand: ByHand) -> None:
    made(by_hand)
    for _ in range(2):
        by_hand.run("INSERT INTO requests (request_id, workflow) VALUES ('r', 'w') ON CONFLICT DO NOTHING;")
        by_hand.run(
            "INSERT INTO activity_events (event_id, activity_exec_id, transition) VALUES ('e', 'x', 'QUEUED') "
            "ON CONFLICT DO NOTHING;"
        )
    assert len(by_hand.rows("SELECT * FROM request_status")) == 1
    assert len(by_hand.rows("SELECT * FROM activity_event_status")) == 1


@pytest.mark.parametrize(
    "insert",
    [
        "requests (request_id, state) VALUES ('r', 'ACCEPTED')",
        "requests (request_id, refusal) VALUES ('r', 'no')",
        "requests (request_id, instance_number) VALUES ('r', 1)",
        "requests (request_id, handled_at_ms) VALUES ('r', 1)",
        "activity_events (event_id, activity_exec_id, transition, state) VALUES ('e', 'x', 'NOTE', 'APPLIED')",
        "activity_events (event_id, activity_exec_id, transition, refusal) VALUES ('e', 'x', 'NOTE', 'no')",
        "activity_events (event_id, activity_exec_id, transition, cancel_requested) VALUES ('e', 'x', 'NOTE', 1)",
        "activity_events (event_id, activity_exec_id, transition, handled_at_ms) VALUES ('e', 'x', 'NOTE', 1)",
    ],
)
def test_C13_engine_columns_are_refused_by_a_trigger_of_sqlite(by_hand: ByHand, insert: str) -> None:
    if by_hand.is_postgres:
        pytest.skip("roles refuse it there: test_client_roles")
    made(by_hand)
    with pytest.raises(Refused, match="written by the engine"):
        by_hand.run(f"INSERT INTO {insert};")
