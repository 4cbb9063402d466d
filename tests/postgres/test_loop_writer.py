"""Groups that are sent in the event loop: lost connections are settled, and a process that stops holds no rows."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from tests.forking.processes import program
from tests.postgres.cluster import FAST
from tests.postgres.fixtures import NewCluster
from tests.postgres.processes import ENVIRONMENT, ROOT
from tests.postgres.proxy import CALL, Every, Fate, Proxy
from tests.postgres.server import Place
from tests.postgres.stores import ask, on_a_store, run, ways_of_writing, writer_of

from holdfast.storage.members.outcomes import Applied, StartedInstance
from holdfast.storage.postgres.loop_query import LoopQuery
from holdfast.storage.postgres.store import PostgresStore
from holdfast.testing.conformance.bench import ANNA, Bench, ManualClock, first_turn, new_attempt, start, turn

ONE, THREAD, CAREFUL = "one call", "on the thread", "answer by answer"
PATIENCE_SECONDS = 20
MANY_BYTES = 300_000
"""More than the buffers of a socket take."""


def on_a_bench(place: Place, case: Callable[[Bench], Awaitable[None]]) -> None:
    """A store whose writer is connected."""
    clock = ManualClock()

    async def begun(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        await bench.started("first")
        await case(bench)

    on_a_store(place, begun, clock=clock)


def until_one_waits(place: Place) -> None:
    """Until a transaction waits for a row."""
    while not ask(place, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        pass


# ------------------------------------------------------------ lost connections


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("way", [ONE, THREAD])
def test_L13_a_call_whose_reply_is_lost_is_there_once(
    postgres: Place, monkeypatch: pytest.MonkeyPatch, is_done: bool, way: str
) -> None:
    """The whole call is in doubt, and its id settles it: on the event loop, and on the thread."""

    async def case(bench: Bench) -> None:
        lost: list[bool] = []
        query_run, execute = LoopQuery.run, psycopg.Connection.execute

        async def losing(query: LoopQuery, connection: Any, text: bytes, *values: Any) -> Any:
            if values:
                return await query_run(query, connection, text, *values)
            if way == THREAD:
                raise psycopg.errors.LockNotAvailable("the thread does it")
            if not lost:
                lost.append(is_done)
                if is_done:
                    await query_run(query, connection, text)
                connection.close()
                raise psycopg.OperationalError("the connection is lost")
            return await query_run(query, connection, text)

        def losing_on_thread(connection: Any, query: Any, *more: Any) -> Any:
            if way != THREAD or lost or not (isinstance(query, bytes) and CALL in query):
                return execute(connection, query, *more)
            lost.append(is_done)
            if is_done:
                execute(connection, query, *more)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(LoopQuery, "run", losing)
        monkeypatch.setattr(psycopg.Connection, "execute", losing_on_thread)
        outcome = await bench.one(start("a", first=first_turn()))
        assert isinstance(outcome, StartedInstance)
        assert outcome.created
        assert lost == [is_done]
        record = await bench.instance("a")
        assert record.number == outcome.instance.number, "the outcome is that of the row that is there"
        assert len(await bench.store.read_attempts(record.number, 1)) == 1
        assert ask(postgres, "SELECT is_void FROM {}.commits WHERE id = %s ORDER BY part", bench.last_id) == (
            [(False,)] if is_done else [(True,), (False,)]
        )

    on_a_bench(postgres, case)


@pytest.mark.parametrize("fate", [Fate.LOSE_AND_CUT, Fate.ALLOW_BUT_LOSE_ANSWER], ids=["request", "answer"])
def test_L13_a_call_that_a_proxy_loses_is_there_once(new_cluster: NewCluster, fate: Fate) -> None:
    cluster = new_cluster(FAST)
    with Proxy(cluster.port) as proxy:
        place = Place(cluster.url(port=proxy.port), "shop")

        async def case(bench: Bench) -> None:
            record = await bench.instance("first")
            proxy.rule = Every(2, CALL, fate)
            for number in range(8):
                assert isinstance(await bench.one(turn(record, turn=record.turn + number)), Applied)
            assert proxy.harmed >= 4
            assert (await bench.instance("first")).turn == record.turn + 8
            assert len(await bench.store.read_history(record.number, 1)) == record.turn + 8

        on_a_bench(place, case)


def test_L13_a_connection_that_is_lost_between_groups_is_replaced(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop notices the end of the connection while no group is written, and does not read it again and again."""

    async def case(bench: Bench) -> None:
        record = await bench.instance("first")
        assert isinstance(await bench.one(turn(record)), Applied)
        ways = ways_of_writing(monkeypatch, bench.store)
        noticed = asyncio.Event()
        release = LoopQuery.release

        def noting(query: LoopQuery) -> None:
            release(query)
            noticed.set()

        monkeypatch.setattr(LoopQuery, "release", noting)
        connection = writer_of(bench.store).ready_connection()
        assert connection is not None
        with postgres.connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        await asyncio.wait_for(noticed.wait(), PATIENCE_SECONDS)
        assert writer_of(bench.store).ready_connection() is None
        for number in (1, 2):
            assert isinstance(await bench.one(turn(record, turn=record.turn + number)), Applied)
        assert ways == [THREAD, ONE]

    on_a_bench(postgres, case)


def test_L13_a_call_that_is_cancelled_is_settled_and_the_next_group_is_written(postgres: Place) -> None:
    """Another transaction has the row, so the call is still waiting when it is cancelled."""

    async def case(bench: Bench) -> None:
        record = await bench.instance("first")
        with postgres.connect() as other:
            other.execute("BEGIN")
            run(other, postgres, "SELECT 1 FROM {}.instances FOR UPDATE")
            task = asyncio.get_running_loop().create_task(bench.one(turn(record)))
            await asyncio.to_thread(until_one_waits, postgres)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            was_cancelled = bench.last_id
            assert not await bench.store.was_committed(was_cancelled), "it is void from now on"
            other.execute("COMMIT")
        assert isinstance(await bench.one(turn(record)), Applied)
        assert (await bench.instance("first")).turn == record.turn + 1
        assert not await bench.store.was_committed(was_cancelled)

    on_a_bench(postgres, case)


def test_a_group_whose_thread_goes_on_after_a_cancel_is_not_disturbed(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is the thread's until it is done: the next group waits for it there."""

    async def case(bench: Bench) -> None:
        record = await bench.instance("first")
        ways = ways_of_writing(monkeypatch, bench.store)
        monkeypatch.setattr(vars(bench.store)["_writer"]._query, "is_possible", False)
        with postgres.connect() as other:
            other.execute("BEGIN")
            run(other, postgres, "SELECT 1 FROM {}.instances FOR UPDATE")
            task = asyncio.get_running_loop().create_task(bench.one(turn(record)))
            await asyncio.to_thread(until_one_waits, postgres)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.setattr(vars(bench.store)["_writer"]._query, "is_possible", True)
            following = asyncio.get_running_loop().create_task(bench.one(turn(record, turn=record.turn + 1)))
            await asyncio.sleep(0)
            other.execute("COMMIT")
        assert isinstance(await following, Applied)
        assert ways == [THREAD, THREAD]

    on_a_bench(postgres, case)


def test_groups_that_are_submitted_together_are_written_one_after_the_other(postgres: Place) -> None:
    async def case(bench: Bench) -> None:
        outcomes = await asyncio.gather(*(bench.one(start(f"i{number}", first=first_turn())) for number in range(30)))
        assert all(isinstance(outcome, StartedInstance) and outcome.created for outcome in outcomes)
        assert ask(postgres, "SELECT count(*) FROM {}.instances") == [(31,)]

    on_a_bench(postgres, case)


def test_a_loop_that_cannot_watch_sockets_writes_on_the_thread(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise NotImplementedError

    async def case(bench: Bench) -> None:
        record = await bench.instance("first")
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        ways = ways_of_writing(monkeypatch, bench.store)
        for number in range(2):
            assert isinstance(await bench.one(turn(record, turn=record.turn + number)), Applied)
        assert ways == [ONE, THREAD, THREAD]

    on_a_bench(postgres, case)


def test_a_group_that_is_larger_than_the_buffers_of_a_socket_is_written(postgres: Place) -> None:
    async def case(bench: Bench) -> None:
        record = await bench.instance("first")
        attempts = tuple(new_attempt(number, owner=ANNA, input=b'"%b"' % (b"x" * 60_000)) for number in range(1, 41))
        assert isinstance(await bench.one(turn(record, attempts=attempts)), Applied)
        assert len(await bench.store.read_attempts(record.number, 1)) == 41

    on_a_bench(postgres, case)


# ------------------------------------------------------------ stopped processes


@pytest.mark.parametrize(
    ("activities", "size"), [(1, 1), (1, 500), (1, MANY_BYTES), (8, 8_192), (8, 8_193), (8, MANY_BYTES)]
)
def test_W7_a_process_that_stops_while_it_sends_a_group_holds_no_row(
    new_cluster: NewCluster, activities: int, size: int
) -> None:
    """So many bytes of its first piece are on their way; with the largest size all but the last one. A small group is
    one piece: the server has all of it but one byte, and has not begun.
    """
    cluster = new_cluster(FAST)
    with Proxy(cluster.port) as proxy:
        place = Place(cluster.url(port=proxy.port), "shop")
        beside = Place(cluster.url(), "shop")

        async def case(bench: Bench) -> None:
            record = await bench.instance("first")
            large = b'"%b"' % (b"x" * 1_000 * activities)
            attempts = tuple(new_attempt(number, owner=ANNA, input=large) for number in range(1, 1 + activities))
            proxy.hold_back(CALL, size)
            task = asyncio.get_running_loop().create_task(bench.one(turn(record, attempts=attempts)))
            await asyncio.to_thread(proxy.wait_until_held)
            assert ask(beside, "SELECT 1 FROM {}.instances FOR UPDATE NOWAIT") == [(1,)]
            busy = "SELECT state, query FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            assert ask(beside, busy) == []
            proxy.let_go()
            assert isinstance(await asyncio.wait_for(task, PATIENCE_SECONDS), Applied)

        on_a_bench(place, case)


STOPPER = """
import asyncio, os, signal, sys
from tests.postgres.stores import on_a_store
from tests.postgres.server import Place
from holdfast.testing.conformance.bench import ANNA, Bench, ManualClock, first_turn, start, turn
from holdfast.storage.postgres import loop_query

clock = ManualClock()

async def case(store):
    bench = Bench(store, clock)
    bench.beat(ANNA)
    record = await bench.started("first")
    watch = loop_query.LoopQuery._readable
    def stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)  # the call was sent, and its reply is not read
        watch(self)
    loop_query.LoopQuery._readable = stop
    await bench.one(turn(record))
    print("done", flush=True)

on_a_store(Place(sys.argv[1], sys.argv[2]), case, clock=clock)
"""


def test_W7_a_process_that_stops_after_it_sent_a_group_holds_no_row(postgres: Place) -> None:
    """The server has committed the group without it; the process goes on later, and reads the reply."""
    command = [sys.executable, "-c", STOPPER, postgres.server, postgres.schema]
    with program(command, cwd=ROOT, env=ENVIRONMENT) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with postgres.connect() as connection:
            connection.execute("SET lock_timeout = '10s'")  # the reply comes before the end of the commit
            assert run(connection, postgres, "SELECT turn FROM {}.instances FOR UPDATE") == [(2,)]
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert said == "done\n"
