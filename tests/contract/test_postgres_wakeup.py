"""Wake-up on PostgreSQL: inserted rows notify the workers that have the name, and handled rows notify clients."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.postgres.server import Place

import holdfast as hf
from holdfast.storage.postgres.address import parse
from holdfast.storage.postgres.notifier import MOST_NAMES, ListenNotifier, PollNotifier, make_notifier
from holdfast.storage.wakeups import Wakeup

LIMIT_SECONDS = 30
OFFERS = (
    "INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name) VALUES (%s, 1, 1, 1, 1, 1, %s)"
)
REQUEST = "INSERT INTO requests (request_id, workflow) VALUES (gen_random_uuid(), %s)"
EVENT = "INSERT INTO activity_events (event_id, activity_exec_id, transition) VALUES (gen_random_uuid(), %s, 'NOTE')"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await scenario

    asyncio.run(bounded())


class Rows:
    """The names that one process was notified of."""

    def __init__(self) -> None:
        self.names: asyncio.Queue[str | None] = asyncio.Queue()
        self.woken = 0

    def wake(self, _: Wakeup) -> None:
        self.woken += 1

    async def next(self, count: int) -> set[str | None]:
        return {await self.names.get() for _ in range(count)}


@asynccontextmanager
async def watching(url: str) -> AsyncGenerator[Rows]:
    """A notifier that watches, after its first report, which follows the connect."""
    rows = Rows()
    notifier = make_notifier(parse(url), "me", rows.wake)
    notifier.open()
    notifier.watch_rows(rows.names.put_nowait)
    try:
        assert await rows.next(1) == {None}
        yield rows
    finally:
        notifier.close()


async def opened(url: str) -> None:
    await (await hf.connect(url)).close()


@pytest.fixture
def tables(postgres: Place) -> Place:
    asyncio.run(opened(postgres.url))
    return postgres


def client(place: Place) -> psycopg.Connection:
    connection = place.connect()
    connection.execute(SQL("SET search_path = {}").format(Identifier(place.schema)))
    return connection


def heard(place: Place, inserts: Callable[[psycopg.Connection], object], expected: set[str | None]) -> None:
    """What a process hears of the inserts of one transaction, and nothing else."""

    async def scenario() -> None:
        async with watching(place.url) as rows:
            with client(place) as connection:
                with connection.transaction():
                    inserts(connection)
                assert await rows.next(len(expected)) == expected
                connection.execute(REQUEST, ("last",))
                assert await rows.next(1) == {"requests:last"}
            assert rows.woken == 1, "rows of clients do not wake the duties that look for other work"

    run(scenario())


def test_C12_the_names_of_workflows_are_notified_once_each(tables: Place) -> None:
    def inserts(connection: psycopg.Connection) -> None:
        connection.execute(
            "INSERT INTO requests (request_id, workflow) SELECT n, CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END "
            "FROM generate_series(1, 1000) AS n"
        )

    heard(tables, inserts, {"requests:even", "requests:odd"})


def test_C12_the_names_of_activities_are_notified(tables: Place) -> None:
    def inserts(connection: psycopg.Connection) -> None:
        connection.execute(OFFERS, ("one", "train"))
        connection.execute(OFFERS, ("two", "a:b"))
        connection.execute(EVENT, ("one",))
        connection.execute(EVENT, ("two",))

    heard(tables, inserts, {"activity_events:train", "activity_events:a:b"})


def a_long_activity(connection: psycopg.Connection) -> None:
    connection.execute(OFFERS, ("x", "n" * 256))
    connection.execute(EVENT, ("x",))


WITHOUT_NAMES: dict[str, Callable[[psycopg.Connection], object]] = {
    "long name": lambda connection: connection.execute(REQUEST, ("n" * 256,)),
    "no name": lambda connection: connection.execute(REQUEST, (None,)),
    "empty name": lambda connection: connection.execute(REQUEST, ("",)),
    "event and cancel": lambda connection: connection.execute(
        "INSERT INTO requests (request_id, kind, workflow) VALUES ('a', 'event', 'w'), ('b', 'cancel', 'w')"
    ),
    "21 names": lambda connection: connection.execute(
        "INSERT INTO requests (request_id, workflow) SELECT n, n FROM generate_series(1, 21) AS n"
    ),
    "unknown id": lambda connection: connection.execute(EVENT, ("unknown",)),
    "long id": lambda connection: connection.execute(EVENT, ("n" * 10_000,)),
    "long activity": a_long_activity,
}


@pytest.mark.parametrize("case", WITHOUT_NAMES)
def test_C12_rows_of_unknown_names_are_notified_without_a_name(tables: Place, case: str) -> None:
    heard(tables, WITHOUT_NAMES[case], {None})


def test_twenty_names_and_a_name_of_255_bytes_are_notified(tables: Place) -> None:
    def inserts(connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO requests (request_id, workflow) SELECT n, n FROM generate_series(1, 19) AS n")
        connection.execute(REQUEST, ("n" * 255,))

    heard(tables, inserts, {*(f"requests:{number}" for number in range(1, 20)), f"requests:{'n' * 255}"})


def test_more_names_than_the_loop_should_take_are_reported_as_any(tables: Place) -> None:
    async def scenario() -> None:
        async with watching(tables.url) as rows:
            with client(tables) as connection, connection.transaction():
                for number in range(MOST_NAMES * 3):
                    connection.execute(REQUEST, (f"w{number}",))
            found = await rows.next(1)
            while None not in found:
                found |= await rows.next(1)

    run(scenario())


def test_a_repeated_insert_and_a_copy(tables: Place) -> None:
    def inserts(connection: psycopg.Connection) -> None:
        for _ in range(2):
            connection.execute("INSERT INTO requests (request_id, workflow) VALUES ('r', 'w') ON CONFLICT DO NOTHING")
        with connection.cursor().copy("COPY requests (request_id, workflow) FROM STDIN") as copy:
            copy.write_row(("s", "copied"))

    heard(tables, inserts, {"requests:w", "requests:copied"})


def test_a_long_schema_has_the_same_channel_in_its_triggers(postgres_server: str) -> None:
    place = Place(postgres_server, "a_schema_" + "n" * 54)
    try:
        asyncio.run(opened(place.url))
        heard(place, lambda connection: connection.execute(REQUEST, ("w",)), {"requests:w"})
    finally:
        place.drop()


def test_C12_without_the_triggers_a_worker_polls(tables: Place) -> None:
    with client(tables) as connection:
        connection.execute("DROP TRIGGER requests_notify ON requests")

    async def scenario() -> None:
        async with watching(f"{tables.url}&poll_seconds=0.05") as rows:
            await asyncio.sleep(0.3)
            assert rows.names.empty(), "there are no new rows"
            with client(tables) as connection:
                connection.execute(REQUEST, ("w",))
            assert await rows.next(1) == {None}

    run(scenario())


def test_C12_without_notifications_a_worker_polls(tables: Place) -> None:
    async def scenario() -> None:
        rows = Rows()
        notifier = make_notifier(parse(f"{tables.url}&notify=false&poll_seconds=0.02"), "me", rows.wake)
        assert isinstance(notifier, PollNotifier)
        notifier.open()
        await asyncio.sleep(0.1)
        assert rows.names.empty(), "only a worker watches"
        notifier.watch_rows(rows.names.put_nowait)
        await rows.next(3)
        notifier.watch_rows(None)
        while not rows.names.empty():
            rows.names.get_nowait()
        await asyncio.sleep(0.1)
        assert rows.names.empty()
        notifier.close()

    run(scenario())


def test_a_process_hears_of_rows_only_while_its_worker_runs(tables: Place) -> None:
    async def scenario() -> None:
        rows = Rows()
        connected = asyncio.Event()
        notifier = make_notifier(parse(tables.url), "me", lambda _: connected.set())
        notifier.open()
        await connected.wait()
        with client(tables) as connection:
            connection.execute(REQUEST, ("before",))
            await asyncio.sleep(0.2)
            notifier.watch_rows(rows.names.put_nowait)
            connection.execute(REQUEST, ("while",))
            assert await rows.next(1) == {"requests:while"}
            notifier.watch_rows(None)
            connection.execute(REQUEST, ("after",))
            await asyncio.sleep(0.2)
        assert rows.names.empty()
        notifier.close()

    run(scenario())


# ---------------------------------------------------------------- notifications for clients


async def notified(place: Place, channel: str, count: int, send: Callable[[ListenNotifier], None]) -> list[str]:
    """The payloads that a client receives on a channel."""
    ready = asyncio.Event()
    notifier = make_notifier(parse(place.url), "me", lambda _: ready.set())
    assert isinstance(notifier, ListenNotifier)
    notifier.open()
    await ready.wait()
    try:
        async with await psycopg.AsyncConnection.connect(place.server, autocommit=True) as connection:
            await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            send(notifier)
            found = connection.notifies(timeout=LIMIT_SECONDS, stop_after=count)
            return [message.payload async for message in found]
    finally:
        notifier.close()


def test_C12_clients_hear_of_handled_rows_and_of_open_activities(tables: Place) -> None:
    async def scenario() -> None:
        schema = tables.schema
        ids = [f"r{number}" for number in range(2_500)]
        send_ids: Callable[[ListenNotifier], None] = lambda notifier: notifier.rows_handled("requests", ids)  # noqa: E731
        assert await notified(tables, f"{schema}_requests", len(ids), send_ids) == ids
        send: Callable[[ListenNotifier], None] = lambda notifier: notifier.rows_handled("activity_events", ["e"])  # noqa: E731
        assert await notified(tables, f"{schema}_activity_events", 1, send) == ["e"]
        offer: Callable[[ListenNotifier], None] = lambda notifier: notifier.offered({"gpu"})  # noqa: E731
        assert await notified(tables, f"{schema}_open_activities", 1, offer) == ["gpu"]

    run(scenario())


def test_an_id_that_is_too_long_for_a_payload_is_notified_without_it(tables: Place) -> None:
    async def scenario() -> None:
        def send(notifier: ListenNotifier) -> None:
            notifier.rows_handled("requests", ["ä" * 4_000, "short"])

        assert await notified(tables, f"{tables.schema}_requests", 2, send) == ["", "short"]

    run(scenario())
