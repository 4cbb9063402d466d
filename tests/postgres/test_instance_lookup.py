"""Look-ups by id in the event loop: many are one read, and each sees what was committed before it was asked."""

import asyncio
from typing import Any

import psycopg
import pytest
from tests.postgres.server import Place
from tests.postgres.stores import on_a_store

from holdfast.storage.postgres.loop_query import LoopQuery
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.records import CommitId, InstanceId
from holdfast.testing.conformance.bench import ManualClock, start


def counted_reads(patch: pytest.MonkeyPatch, store: PostgresStore) -> list[bytes]:
    """The statements of look-ups, as they are sent."""
    sent: list[bytes] = []
    run = LoopQuery.run
    lookup = vars(store)["_lookup"]._query

    def noting(query: LoopQuery, connection: Any, statement: bytes, *values: Any) -> Any:
        if query is lookup:
            sent.append(statement)
        return run(query, connection, statement, *values)

    patch.setattr(LoopQuery, "run", noting)
    return sent


def test_ids_that_are_asked_for_at_once_are_one_read_or_two(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(store: PostgresStore) -> None:
        await store.commit(CommitId(1), [start(f"i{number}") for number in range(0, 30, 2)])
        sent = counted_reads(monkeypatch, store)
        names = [InstanceId(f"i{number}") for number in range(30)]
        found = await asyncio.gather(*(store.find_instance(name) for name in (*names, *names)))
        assert [None if record is None else record.id for record in found] == [
            name if at % 2 == 0 else None for at, name in enumerate([*names, *names])
        ]
        assert 1 <= len(sent) <= 2

    on_a_store(postgres, case, clock=ManualClock())


def test_G3_a_look_up_sees_what_was_committed_before_it_was_asked(postgres: Place) -> None:
    """Also while another one is running, whose snapshot may be older."""

    async def case(store: PostgresStore) -> None:
        for number in range(10):
            running = [asyncio.ensure_future(store.find_instance(InstanceId("other"))) for _ in range(3)]
            await asyncio.sleep(0)
            await store.commit(CommitId(number), [start(f"i{number}")])
            assert await store.find_instance(InstanceId(f"i{number}")) is not None
            assert await asyncio.gather(*running) == [None] * 3

    on_a_store(postgres, case, clock=ManualClock())


def test_a_look_up_whose_connection_is_lost_or_whose_caller_is_cancelled_is_made_in_another_way(
    postgres: Place,
) -> None:
    async def case(store: PostgresStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        assert await store.find_instance(InstanceId("a")) is not None
        connection = vars(store)["_lookup"]._connections.ready()
        with postgres.connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        assert await store.find_instance(InstanceId("a")) is not None
        both = [asyncio.ensure_future(store.find_instance(InstanceId("a"))) for _ in range(2)]
        await asyncio.sleep(0)
        both[0].cancel()
        assert await both[1] is not None, "the one that waits for the same read reads for itself"
        with pytest.raises(asyncio.CancelledError):
            await both[0]

    on_a_store(postgres, case, clock=ManualClock())


def test_an_id_that_cannot_be_sent_is_the_error_of_its_own_look_up(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        found, refused = await asyncio.gather(
            store.find_instance(InstanceId("a")), store.find_instance(InstanceId("b\0c")), return_exceptions=True
        )
        assert not isinstance(found, BaseException)
        assert found is not None
        assert isinstance(refused, psycopg.DataError)

    on_a_store(postgres, case, clock=ManualClock())
