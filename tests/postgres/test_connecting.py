"""Connections: what they are made with, what is checked, and how they come back."""

import logging
import select
import threading

import psycopg
import pytest
from tests.postgres.cluster import FAST, free_port
from tests.postgres.fixtures import NewCluster
from tests.postgres.server import Place

from holdfast.errors import StoreError
from holdfast.storage.postgres import connection as connecting
from holdfast.storage.postgres.address import Address, parse
from holdfast.storage.postgres.connection import (
    NotPrimary,
    PostgresConnection,
    ReconnectingConnection,
    connect,
    jitter,
    one_round_trip,
    pause_seconds,
    settings,
)


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    """What is said once is said once for each test."""
    connecting._warned.clear()
    connecting.outage_of.cache_clear()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def value(connection: PostgresConnection, name: str) -> object:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return row[0]


def test_a_session_keeps_nothing_that_a_pooler_would_lose(postgres: Place) -> None:
    with connect(parse(postgres.url)) as connection:
        assert connection.autocommit
        assert connection.prepare_threshold is None
        assert value(connection, "application_name") == "holdfast"
        assert value(connection, "client_encoding") == "UTF8"
        changed = "SELECT name FROM pg_settings WHERE source = 'session'"
        assert connection.execute(changed).fetchall() == []
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_the_url_decides_over_our_defaults() -> None:
    ours = settings(parse("postgresql://h/d"))
    assert ours["connect_timeout"] == "10"
    assert ours["keepalives"] == "1"
    assert "target_session_attrs" not in ours
    theirs = settings(parse("postgresql://one,two/d?connect_timeout=3&application_name=shop"))
    assert theirs["connect_timeout"] == "3"
    assert theirs["application_name"] == "shop"
    assert theirs["target_session_attrs"] == "read-write"
    assert settings(parse("postgresql://one,two/d?target_session_attrs=any"))["target_session_attrs"] == "any"


@pytest.mark.slow
def test_settings_that_lose_commits_are_named_once(new_cluster: NewCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster = new_cluster({**FAST, "synchronous_commit": "off"})
    address = parse(cluster.url())
    for _ in range(2):
        connect(address).close()
    texts = said(caplog)
    assert len(texts) == 3
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert sum(f"runs with {name} = off: " in text for text in texts) == 1


@pytest.mark.slow
def test_a_safe_server_is_passed_over_in_silence_and_a_standby_refused(
    new_cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = new_cluster()
    connect(parse(cluster.url())).close()
    assert said(caplog) == []
    with pytest.raises(NotPrimary, match="is read-only, and cannot be written"):
        connect(parse(f"{cluster.url()}&options=-cdefault_transaction_read_only%3Don"))
    cluster.stop()
    (cluster.data / "standby.signal").touch()
    cluster.start()
    with pytest.raises(NotPrimary, match=r"postgresql://postgres@.* is a standby, and cannot be written"):
        connect(parse(cluster.url()))


@pytest.mark.slow
def test_a_password_is_sent_and_never_shown(new_cluster: NewCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster = new_cluster()
    rules = cluster.data / "pg_hba.conf"
    rules.write_text("host all guarded all scram-sha-256\n" + rules.read_text("utf-8"), encoding="utf-8")
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'hunter2'")
        connection.execute("SELECT pg_reload_conf()")
    good = f"postgresql://guarded:hunter2@127.0.0.1:{cluster.port}/postgres"
    ReconnectingConnection(parse(good)).get().close()
    with pytest.raises(StoreError, match=r"cannot be used: .*password authentication failed") as caught:
        ReconnectingConnection(parse(good.replace("hunter2", "hunter22"))).get()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in caplog.text


def test_an_old_server_is_refused(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "OLDEST_SERVER", 99)
    with pytest.raises(StoreError, match=r"is PostgreSQL 1\d\.\d+; Holdfast needs 99 or newer"):
        ReconnectingConnection(parse(postgres.url)).get()


def test_a_connection_is_made_once_and_again_after_its_loss(postgres: Place, caplog: pytest.LogCaptureFixture) -> None:
    keeper = ReconnectingConnection(parse(postgres.url))
    first = keeper.get()
    assert keeper.get() is first
    caplog.clear()
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (first.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError) as caught:
        first.execute("SELECT 1")
    keeper.lost(caught.value)
    second = keeper.get()
    assert second is not first
    assert second.execute("SELECT 1").fetchone() == (1,)
    texts = said(caplog)
    assert len(texts) == 2
    assert "is tried again: terminating connection due to administrator command" in texts[0]
    assert texts[1].endswith("is reached again")
    keeper.close()
    assert second.closed
    with pytest.raises(StoreError, match="is closed"):
        keeper.get()


def test_connections_that_find_out_later_say_nothing_of_an_outage_that_is_over(
    postgres: Place, caplog: pytest.LogCaptureFixture
) -> None:
    keepers = [ReconnectingConnection(parse(postgres.url)) for _ in range(3)]
    for keeper in keepers:
        keeper.get()
    caplog.clear()
    for _ in range(2):
        for keeper in keepers:
            keeper.lost(ConnectionResetError("by peer"))
            keeper.get()
    assert [text.endswith("is reached again") for text in said(caplog)] == [False, True] * 2
    for keeper in keepers:
        keeper.close()


class Flaky:
    """Fails so often, then connects."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.tries = 0

    def __call__(self, address: Address) -> PostgresConnection:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise psycopg.OperationalError("connection refused")
        return connect(address)


def test_one_outage_is_told_once_by_all_connections(postgres: Place, caplog: pytest.LogCaptureFixture) -> None:
    address = parse(postgres.url)
    connect(address).close()
    caplog.clear()
    ways = [Flaky(3), Flaky(0)]
    keepers = [ReconnectingConnection(address, chance=lambda: 0, open_one=way) for way in ways]
    for keeper in keepers:
        keeper.get()
        keeper.close()
    assert [way.tries for way in ways] == [4, 1]
    assert len(said(caplog)) == 2


def test_tries_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    address = parse(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres")
    way = Flaky(100)
    keeper = ReconnectingConnection(address, tries=3, chance=lambda: 0, open_one=way)
    with pytest.raises(StoreError, match=r"127.0.0.1:\d+/postgres.* cannot be reached: connection refused"):
        keeper.get()
    assert way.tries == 3
    with pytest.raises(StoreError):
        keeper.get()
    assert len(said(caplog)) == 1


def test_whoever_waits_is_told_when_it_is_stopped() -> None:
    address = parse(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres")
    tried = threading.Event()
    troubles: list[str] = []

    def refuse(_: Address) -> PostgresConnection:
        tried.set()
        raise psycopg.OperationalError("connection refused")

    keeper = ReconnectingConnection(address, tries=10**9, open_one=refuse)

    def get() -> None:
        try:
            keeper.get()
        except StoreError as error:
            troubles.append(str(error))

    waiter = threading.Thread(target=get)
    waiter.start()
    assert tried.wait(10)
    keeper.stop()
    waiter.join(10)
    assert len(troubles) == 1
    assert troubles[0].endswith("is closed")


def test_pauses_grow_to_a_bound_and_are_out_of_step() -> None:
    longest = [pause_seconds(failures, 1.0) for failures in range(1, 12)]
    assert longest[:3] == [0.05, 0.1, 0.2]
    assert longest[-1] == 1.0
    assert pause_seconds(1, 0.0) == 0.025
    numbers = {jitter() for _ in range(100)}
    assert len(numbers) == 100
    assert all(0 <= number < 1 for number in numbers)


def test_a_transaction_whose_client_vanished_after_a_round_trip_is_ended(postgres: Place) -> None:
    """After psycopg's own pipelines the server does not count how long a transaction is idle."""
    address = parse(postgres.url)
    with connect(address) as connection, postgres.connect() as other:
        with one_round_trip(connection):
            connection.execute("BEGIN")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 100")
            answer = connection.execute("SELECT 7 FROM pg_sleep(0.2)")  # not there yet when all has been sent
        assert answer.fetchall() == [(7,)]
        pid = connection.info.backend_pid
        alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        while other.execute(alive, (pid,)).fetchone() != (0,):
            other.execute("SELECT pg_sleep(0.05)")
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            connection.execute("SELECT 1")


def test_W7_nothing_of_a_round_trip_is_sent_before_all_of_it(postgres: Place) -> None:
    """Who is stopped between two statements must not leave a transaction behind that the server does not end."""
    with connect(parse(postgres.url)) as connection, postgres.connect() as other:
        heard = "SELECT state, query LIKE '%%gathered%%' FROM pg_stat_activity WHERE pid = %s"
        with one_round_trip(connection):
            connection.execute("BEGIN")
            first = connection.execute("SELECT 'gathered'")
            assert other.execute(heard, (connection.info.backend_pid,)).fetchone() == ("idle", False)
            second = connection.execute("SELECT 'gathered, too'")
            assert other.execute(heard, (connection.info.backend_pid,)).fetchone() == ("idle", False)
        assert (first.fetchone(), second.fetchone()) == (("gathered",), ("gathered, too",))
        assert other.execute(heard, (connection.info.backend_pid,)).fetchone() == ("idle in transaction", True)
        connection.execute("ROLLBACK")


def test_a_round_trip_that_fails_leaves_a_connection_that_works(postgres: Place) -> None:
    with connect(parse(postgres.url)) as connection:

        def fail() -> None:
            with one_round_trip(connection):
                for statement in ("BEGIN", "SELECT 1 / 0", "SELECT 7"):
                    connection.execute(statement)

        with pytest.raises(psycopg.errors.DivisionByZero):
            fail()
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT 7").fetchone() == (7,)


def test_a_connection_that_is_lost_in_a_round_trip_is_told_once(
    postgres: Place, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect(parse(postgres.url))
    caplog.clear()
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))

    def ask_often() -> None:
        with one_round_trip(connection):
            for _ in range(100):  # the loss is noticed in the middle
                connection.execute("SELECT 1")
                select.select([connection.fileno()], [], [], 0.01)

    with pytest.raises(psycopg.OperationalError):
        ask_often()
    connection.close()
    assert caplog.records == []
