"""Wake-ups between processes: heard from others, after every reconnect, and without LISTEN by looking."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

import psycopg
import pytest
from tests.postgres.fixtures import NewCluster
from tests.postgres.server import Place

from holdfast.storage.contract import Notifier
from holdfast.storage.postgres.address import Address, parse
from holdfast.storage.postgres.connection import PostgresConnection, ReconnectingConnection, connect
from holdfast.storage.postgres.notifier import ListenNotifier, PollNotifier, make_notifier
from holdfast.storage.records import InstanceNumber
from holdfast.storage.wakeups import EVERYTHING, Heard, Wakeup, Wakeups

LIMIT_SECONDS = 30
BARE_NOTIFY = "SELECT pg_notify(%s, %s)"
"""A notification without a wake-up, as earlier releases send it."""
NEWS = Wakeups(to_all=EVERYTHING)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await scenario

    asyncio.run(bounded())


class Ear:
    """One process's end, and how often it was woken."""

    def __init__(self, make: Callable[[Heard], Notifier]) -> None:
        self.count = 0
        self._news = asyncio.Event()
        self.wakeups: list[Wakeup] = []
        self.bell = make(self._wake)

    def _wake(self, wakeup: Wakeup) -> None:
        self.wakeups.append(wakeup)
        self.count += 1
        self._news.set()

    async def woken(self) -> None:
        """Wait for a wake-up that was not waited for yet."""
        await self._news.wait()
        self._news.clear()

    async def __aenter__(self) -> Self:
        self.bell.open()
        await self.woken()  # it listens
        return self

    async def __aexit__(self, *_: object) -> None:
        self.bell.close()


def ear(address: Address, name: str) -> Ear:
    return Ear(lambda heard: make_notifier(address, name, heard))


def listeners(connection: psycopg.Connection, address: Address) -> list[int]:
    pattern = f"LISTEN%{address.channel}%"
    found = connection.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE %s", (pattern,)).fetchall()
    return [pid for (pid,) in found]


def test_a_notification_of_an_earlier_release_wakes_all_others_and_not_the_sender(postgres: Place) -> None:
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b, ear(address, "c") as c:
            with postgres.connect() as connection, connection.transaction():
                connection.execute(BARE_NOTIFY, (address.channel, "a"))
            await b.woken()
            await c.woken()
            with postgres.connect() as connection:
                connection.execute(BARE_NOTIFY, (address.channel, "b"))
            await a.woken()
            assert (a.count, b.count) == (2, 2), "once for listening, once for the other's"

    run(scenario())


def test_a_bell_that_is_rung_wakes_the_others(postgres: Place) -> None:
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b:
            a.bell.notify(NEWS)
            await b.woken()
            b.bell.notify(NEWS)
            await a.woken()

    run(scenario())


def test_what_arrives_with_the_answer_to_a_statement_is_heard(postgres: Place) -> None:
    """Two who ring at once: each may find the other's in what its own statement brings back."""
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b:
            for _ in range(50):
                a.bell.notify(NEWS)
                b.bell.notify(NEWS)
                await a.woken()
                await b.woken()

    run(scenario())


def test_another_schema_is_not_heard(postgres: Place) -> None:
    ours, theirs = parse(postgres.url), parse(f"{postgres.url}x")

    async def scenario() -> None:
        async with ear(ours, "a") as a, ear(theirs, "b") as b:
            b.bell.notify(NEWS)
            with postgres.connect() as connection:
                connection.execute(BARE_NOTIFY, (theirs.channel, "c"))
                connection.execute(BARE_NOTIFY, (ours.channel, "d"))
            await b.woken()
            await a.woken()
            assert a.count == 2

    run(scenario())


def test_a_lost_connection_is_made_again_and_wakes_once(postgres: Place) -> None:
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a:
            with postgres.connect() as connection:
                (first,) = listeners(connection, address)
                connection.execute("SELECT pg_terminate_backend(%s)", (first,))
                await a.woken()
                assert a.count == 2
                assert listeners(connection, address) != [first]
                connection.execute(BARE_NOTIFY, (address.channel, "b"))
                await a.woken()

    run(scenario())


@pytest.mark.slow
def test_a_restart_of_the_server_is_survived(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    address = parse(cluster.url(tcp=True))

    async def scenario() -> None:
        async with ear(address, "a") as a:
            await asyncio.to_thread(cluster.restart, "immediate")
            await a.woken()
            with psycopg.connect(cluster.url(), autocommit=True) as connection:
                connection.execute(BARE_NOTIFY, (address.channel, "b"))
            await a.woken()

    run(scenario())


def test_it_ends_promptly_and_leaves_nothing(postgres: Place) -> None:
    async def scenario() -> None:
        async with ear(parse(postgres.url), "a"):
            pass
        assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-listener"]

    run(scenario())


def test_one_that_cannot_connect_ends_promptly_too(postgres: Place) -> None:
    tried = threading.Event()

    def refuse(_: Address) -> PostgresConnection:
        tried.set()
        raise psycopg.OperationalError("connection refused")

    async def scenario() -> None:
        address = parse(postgres.url)
        bell = ListenNotifier(address, "a", lambda _: None, keeper=ReconnectingConnection(address, open_one=refuse))
        bell.open()
        await asyncio.to_thread(tried.wait)
        bell.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-listener"]

    run(scenario())


def test_one_whose_tries_are_used_up_tries_on(postgres: Place) -> None:
    left = [True, True, True]

    def open_later(address: Address) -> PostgresConnection:
        if left:
            left.pop()
            raise psycopg.OperationalError("connection refused")
        return connect(address)

    async def scenario() -> None:
        address = parse(postgres.url)
        keeper = ReconnectingConnection(address, tries=2, open_one=open_later)
        async with Ear(lambda heard: ListenNotifier(address, "a", heard, keeper=keeper)) as a:
            assert a.count == 1

    run(scenario())


def test_nothing_is_called_after_it_was_closed(postgres: Place) -> None:
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b:
            with postgres.connect() as connection:
                connection.execute(BARE_NOTIFY, (address.channel, "c"))
            a.bell.close()  # before the loop could call
            await b.woken()
            assert a.count == 1

    run(scenario())


def test_without_notify_it_wakes_by_itself(postgres: Place) -> None:
    address = parse(f"{postgres.url}&notify=false&poll_seconds=0.01")

    async def scenario() -> None:
        async with ear(address, "a") as a:
            assert isinstance(a.bell, PollNotifier)
            a.bell.notify(NEWS)
            await a.woken()
            await a.woken()
            with postgres.connect() as connection:
                assert listeners(connection, address) == []
        count = a.count
        await asyncio.sleep(0.05)
        assert a.count == count

    run(scenario())


def test_C15_a_wake_up_for_one_process_reaches_no_other(postgres: Place) -> None:
    address = parse(postgres.url)
    mine = Wakeup(instances=frozenset({InstanceNumber(7)}))

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b, ear(address, "c") as c:
            a.bell.notify(Wakeups(to_each={"b": mine}))
            await b.woken()
            a.bell.notify(NEWS)
            await c.woken()
            assert b.wakeups[1] == mine
            assert c.wakeups[1:] == [EVERYTHING]
            assert a.count == 1, "a process does not wake itself"

    run(scenario())


def test_C15_a_wake_up_that_is_too_long_for_a_payload_is_one_for_everything(postgres: Place) -> None:
    address = parse(postgres.url)

    async def scenario() -> None:
        async with ear(address, "a") as a, ear(address, "b") as b:
            a.bell.notify(Wakeups(to_all=Wakeup(queues=frozenset({"q" * 9_000}))))
            await b.woken()
            assert b.wakeups[1] == EVERYTHING

    run(scenario())
