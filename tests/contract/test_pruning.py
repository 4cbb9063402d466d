"""C11: rows of clients are pruned by time: events after their instance closed, and refused rows."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.contract.by_hand import ByHand, by_hand

from holdfast.storage.contract import CLIENT_ROWS_KEPT_MS
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sqlite import store as sqlite_store
from holdfast.storage.sqlite.store import SqliteStore

__all__ = ["by_hand"]
NOW_MS = 1_900_000_000_000
OLD_MS = NOW_MS - CLIENT_ROWS_KEPT_MS - 1
NEW_MS = NOW_MS - CLIENT_ROWS_KEPT_MS + 1


@asynccontextmanager
async def opened(by_hand: ByHand) -> AsyncGenerator[PostgresStore | SqliteStore]:
    kind: Any = PostgresStore if by_hand.is_postgres else SqliteStore
    store: PostgresStore | SqliteStore = kind(by_hand.store, clock=lambda: NOW_MS)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def instance(number: int, closed_ms: int | None) -> str:
    closed = "NULL" if closed_ms is None else closed_ms
    return (
        "INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, stamp_ms, input, "  # noqa: S608
        f"input_hash, created_at_ms, closed_at_ms) VALUES ({number}, 'i{number}', 'w', '1', 'COMPLETED', 1, 1, 1, 1, "
        f"'', '', 1, {closed}); "
        "INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name) "
        f"VALUES ('x{number}', {number}, 1, 1, 1, 1, 'a');"
    )


def event(name: str, exec_id: str, at_ms: int, state: str = "APPLIED") -> str:
    return (
        "INSERT INTO activity_events (event_id, activity_exec_id, transition, inserted_at_ms) "  # noqa: S608
        f"VALUES ('{name}', '{exec_id}', 'NOTE', {at_ms}); "
        f"UPDATE activity_events SET state = '{state}', handled_at_ms = {at_ms} WHERE event_id = '{name}';"
    )


def request(name: str, state: str, at_ms: int) -> str:
    return (
        f"INSERT INTO requests (request_id, inserted_at_ms) VALUES ('{name}', {at_ms}); "  # noqa: S608
        f"UPDATE requests SET state = '{state}', handled_at_ms = {at_ms} WHERE request_id = '{name}';"
    )


def left(by_hand: ByHand, table: str, column: str) -> set[str]:
    return {str(row["it"]) for row in by_hand.rows(f"SELECT {column} AS it FROM {table}")}  # noqa: S608


def test_C11_rows_are_deleted_by_time_and_not_before(by_hand: ByHand) -> None:
    async def scenario() -> None:
        async with opened(by_hand) as store:
            by_hand.run(instance(1, OLD_MS) + instance(2, NEW_MS) + instance(3, None) + instance(4, OLD_MS))
            events = [event(f"old of {number}", f"x{number}", OLD_MS) for number in (1, 2, 3, 4)]
            late = event("late", "x4", NEW_MS, "REFUSED")
            unknown = event("unknown", "?", OLD_MS, "REFUSED") + event("unknown and new", "?", NEW_MS, "REFUSED")
            refused = event("refused of 3", "x3", OLD_MS, "REFUSED")
            by_hand.run("".join(events) + late + unknown + refused)
            kept = [request(state, state, OLD_MS) for state in ("ACCEPTED", "TRACE", "NEW")]
            by_hand.run(
                "".join(kept) + request("refused", "REFUSED", OLD_MS) + request("just refused", "REFUSED", NEW_MS)
            )
            while await store.prune():
                pass

    asyncio.run(scenario())
    assert left(by_hand, "activity_events", "event_id") == {
        *("old of 2", "old of 3", "late", "unknown and new", "refused of 3"),
    }
    assert left(by_hand, "offers", "exec_id") == {"x2", "x3", "x4"}, "x4 has an event"
    assert left(by_hand, "requests", "request_id") == {"ACCEPTED", "TRACE", "NEW", "just refused"}


def test_pruning_is_done_in_batches(by_hand: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_store, "PIECE", 3)
    monkeypatch.setattr(sqlite_store, "PIECE", 3)
    calls = 0

    async def scenario() -> None:
        nonlocal calls
        async with opened(by_hand) as store:
            for number in range(1, 9):
                by_hand.run(instance(number, OLD_MS if number != 5 else None))
            by_hand.run("".join(event(f"e{at}", f"x{at % 8 + 1}", OLD_MS) for at in range(40)))
            by_hand.run("".join(event(f"u{at}", "?", OLD_MS, "REFUSED") for at in range(7)))
            by_hand.run("".join(request(f"r{at}", "REFUSED", OLD_MS) for at in range(7)))
            calls = 1
            while await store.prune():
                calls += 1

    asyncio.run(scenario())
    assert calls > 10
    assert left(by_hand, "offers", "exec_id") == {"x5"}
    assert left(by_hand, "activity_events", "event_id") == {f"e{at}" for at in range(40) if at % 8 + 1 == 5}
    assert left(by_hand, "requests", "request_id") == set()
