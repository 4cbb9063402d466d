"""A store on the server of the tests, and what its tests say to it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, LiteralString, TypeVar

import msgspec
import psycopg
import pytest
from psycopg import sql
from tests.postgres.server import Place

from holdfast.core.history import EventReceived, Payload
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.postgres.loop_query import LoopQuery
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.writer import PostgresWriter
from holdfast.storage.records import InstanceId

Kind = TypeVar("Kind")
NULL = Payload(msgspec.Raw(b"null"))


def on_a_store(place: Place, case: Callable[[PostgresStore], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        store = PostgresStore(place.url, **options)
        await store.open()
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(run())


def ask(place: Place, text: LiteralString, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement beside the store; `{}` stands for its schema."""
    with place.connect() as connection:
        return run(connection, place, text, *values)


def run(connection: psycopg.Connection, place: Place, text: LiteralString, *values: object) -> list[tuple[Any, ...]]:
    """The same on a connection of the test's own."""
    query = sql.SQL(text).format(sql.Identifier(place.schema))
    cursor = connection.execute(query, values)
    return cursor.fetchall() if cursor.description else []


def of_kind(outcomes: Sequence[Outcome], kind: type[Kind]) -> list[Kind]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def event(instance: str, message_id: str = "") -> Deliver:
    return Deliver(
        id=InstanceId(instance), event=EventReceived(time_ms=0, name="go", value=NULL), message_id=message_id
    )


def writer_of(store: object) -> PostgresWriter:
    """The writer of a store, with the connection on which it writes groups."""
    writer: object = getattr(getattr(store, "_writer"), "_writer")  # noqa: B009 - private parts
    assert isinstance(writer, PostgresWriter)
    return writer


def ways_of_writing(patch: pytest.MonkeyPatch, store: Any) -> list[str]:
    """Notes how groups are written: as one call in the event loop, optimistically on the thread, answer by answer."""
    ways: list[str] = []
    lookup: object = getattr(getattr(store, "_lookup"), "_query")  # noqa: B009 - private parts

    def noting(owner: type, name: str, way: str) -> None:
        original = getattr(owner, name)

        def noted(self: Any, *arguments: Any) -> Any:
            if self is not lookup:
                ways.append(way)
            return original(self, *arguments)

        patch.setattr(owner, name, noted)

    noting(LoopQuery, "run", "one call")
    noting(PostgresWriter, "_write_optimistically", "on the thread")
    noting(PostgresWriter, "_begin", "answer by answer")
    return ways
