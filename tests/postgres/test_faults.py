"""What errors mean, with errors that a real server and a real driver made."""

import socket
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier
from tests.postgres.cluster import free_port
from tests.postgres.server import Place

from holdfast.errors import StoreError
from holdfast.storage.postgres.connection import ErrorClass, NotPrimary, classify_error


@pytest.fixture
def table(postgres: Place) -> Iterator[psycopg.Connection]:
    """A connection whose schema has one table, `kept`."""
    with postgres.connect() as connection:
        schema = Identifier(postgres.schema)
        connection.execute(SQL("CREATE SCHEMA {}").format(schema))
        connection.execute(SQL("SET search_path = {}").format(schema))
        connection.execute("CREATE TABLE kept (number int PRIMARY KEY CHECK (number > 0), word text NOT NULL)")
        connection.execute("INSERT INTO kept VALUES (1, 'one'), (2, 'two')")
        yield connection


def fault_of(action: Callable[[], object]) -> tuple[str | None, ErrorClass]:
    with pytest.raises((psycopg.Error, OSError, UnicodeError)) as caught:
        action()
    return getattr(caught.value, "sqlstate", None), classify_error(caught.value)


@pytest.mark.parametrize(
    ("statement", "state", "fault"),
    [
        ("INSERT INTO kept VALUES (1, 'again')", "23505", ErrorClass.MEMBER),
        ("INSERT INTO kept VALUES (0, 'zero')", "23514", ErrorClass.MEMBER),
        ("INSERT INTO kept VALUES (3, NULL)", "23502", ErrorClass.MEMBER),
        ("SELECT 1 / 0", "22012", ErrorClass.MEMBER),
        ("SELECT 'x'::int", "22P02", ErrorClass.MEMBER),
        ("SELECT (SELECT number FROM kept)", "21000", ErrorClass.MEMBER),
        ("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$", "P0001", ErrorClass.MEMBER),
        ("SELECT * FROM nowhere", "42P01", ErrorClass.BROKEN),
        ("SELECT nothing FROM kept", "42703", ErrorClass.BROKEN),
        ("SELEKT", "42601", ErrorClass.BROKEN),
        ("BEGIN READ ONLY; DELETE FROM kept", "25006", ErrorClass.CONNECTION_LOST),
        ("BEGIN; SET LOCAL statement_timeout = 1; SELECT pg_sleep(10)", "57014", ErrorClass.TRY_AGAIN),
        ("DO $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$", "53100", ErrorClass.BROKEN),
        ("DO $$ BEGIN RAISE 'io' USING ERRCODE = 'io_error'; END $$", "58030", ErrorClass.BROKEN),
        ("DO $$ BEGIN RAISE 'bits' USING ERRCODE = 'data_corrupted'; END $$", "XX001", ErrorClass.BROKEN),
        (
            "DO $$ BEGIN RAISE 'many' USING ERRCODE = 'too_many_connections'; END $$",
            "53300",
            ErrorClass.CONNECTION_LOST,
        ),
    ],
)
def test_errors_of_statements(table: psycopg.Connection, statement: str, state: str, fault: ErrorClass) -> None:
    assert fault_of(lambda: table.execute(statement.encode())) == (state, fault)


def test_a_permission_that_is_missing_is_broken(table: psycopg.Connection, postgres: Place) -> None:
    role = Identifier(f"role_of_{postgres.schema}")
    table.execute(SQL("CREATE ROLE {}").format(role))
    try:
        table.execute(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(Identifier(postgres.schema), role))
        table.execute(SQL("SET ROLE {}").format(role))
        assert fault_of(lambda: table.execute("SELECT * FROM kept")) == ("42501", ErrorClass.BROKEN)
    finally:
        table.execute("RESET ROLE")
        table.execute(SQL("DROP OWNED BY {}").format(role))
        table.execute(SQL("DROP ROLE {}").format(role))


def test_values_that_cannot_be_sent_are_a_members(table: psycopg.Connection) -> None:
    insert = "INSERT INTO kept VALUES (%s, %s)"
    assert fault_of(lambda: table.execute(insert, (3, "a\0b"))) == (None, ErrorClass.MEMBER)
    assert fault_of(lambda: table.execute(insert, (3, "\ud800"))) == (None, ErrorClass.MEMBER)
    assert fault_of(lambda: table.execute(insert, (3, object()))) == (None, ErrorClass.MEMBER)
    assert fault_of(lambda: table.execute(insert, (2**70, "large"))) == ("22003", ErrorClass.MEMBER)
    assert table.execute("SELECT count(*) FROM kept").fetchone() == (2,)


def contender(postgres: Place) -> psycopg.Connection:
    """A transaction that has the second row and waits for nothing yet."""
    other = postgres.connect()
    other.execute(SQL("SET search_path = {}").format(Identifier(postgres.schema)))
    other.execute("SET deadlock_timeout = '10s'")
    other.execute("BEGIN")
    other.execute("UPDATE kept SET word = 'theirs' WHERE number = 2")
    return other


def test_a_deadlock_is_tried_again(table: psycopg.Connection, postgres: Place) -> None:
    table.execute("SET deadlock_timeout = '10ms'")
    table.execute("BEGIN")
    table.execute("UPDATE kept SET word = 'ours' WHERE number = 1")
    other = contender(postgres)
    waiting = threading.Thread(target=other.execute, args=("UPDATE kept SET word = 'theirs' WHERE number = 1",))
    waiting.start()
    update = "UPDATE kept SET word = 'ours' WHERE number = 2"
    assert fault_of(lambda: table.execute(update)) == ("40P01", ErrorClass.TRY_AGAIN)
    table.execute("ROLLBACK")
    waiting.join()
    other.execute("COMMIT")
    other.close()


def test_a_lock_that_is_not_had_in_time_is_tried_again(table: psycopg.Connection, postgres: Place) -> None:
    other = contender(postgres)
    table.execute("SET lock_timeout = '10ms'")
    update = "UPDATE kept SET word = 'ours' WHERE number = 2"
    assert fault_of(lambda: table.execute(update)) == ("55P03", ErrorClass.TRY_AGAIN)
    assert fault_of(lambda: table.execute("SELECT * FROM kept FOR UPDATE NOWAIT")) == ("55P03", ErrorClass.TRY_AGAIN)
    other.close()


def test_a_serialization_failure_is_tried_again(table: psycopg.Connection, postgres: Place) -> None:
    table.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    table.execute("SELECT * FROM kept")
    other = contender(postgres)
    other.execute("COMMIT")
    other.close()
    update = "UPDATE kept SET word = 'ours' WHERE number = 2"
    assert fault_of(lambda: table.execute(update)) == ("40001", ErrorClass.TRY_AGAIN)


def test_a_backend_that_was_ended_is_a_lost_connection(table: psycopg.Connection, postgres: Place) -> None:
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (table.info.backend_pid,))
    assert fault_of(lambda: table.execute("SELECT 1")) == ("57P01", ErrorClass.CONNECTION_LOST)
    assert fault_of(lambda: table.execute("SELECT 1")) == (None, ErrorClass.CONNECTION_LOST)


def test_a_socket_that_was_closed_is_a_lost_connection(table: psycopg.Connection) -> None:
    with socket.socket(fileno=table.fileno()) as raw:
        raw.shutdown(socket.SHUT_RDWR)
        raw.detach()
    assert fault_of(lambda: table.execute("SELECT 1")) == (None, ErrorClass.CONNECTION_LOST)


def test_no_server_there_is_a_lost_connection() -> None:
    where = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    assert fault_of(lambda: psycopg.connect(where)) == (None, ErrorClass.CONNECTION_LOST)


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_a_lost_connection() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        where = f"postgresql://postgres@127.0.0.1:{mute.getsockname()[1]}/postgres"
        with pytest.raises(errors.ConnectionTimeout) as caught:
            psycopg.connect(where, connect_timeout=2)
    assert classify_error(caught.value) is ErrorClass.CONNECTION_LOST


@pytest.mark.parametrize("wrong", ["dbname=nowhere", "user=nobody_we_know", "port=70000", "sslmode=sometimes"])
def test_a_refusal_is_broken(postgres: Place, wrong: str) -> None:
    name, _, value = wrong.partition("=")
    where = make_conninfo(postgres.server, **{name: value})
    assert fault_of(lambda: psycopg.connect(where)) == (None, ErrorClass.BROKEN)


def test_our_own_errors() -> None:
    assert classify_error(StoreError("too old")) is ErrorClass.BROKEN
    assert classify_error(NotPrimary("a standby")) is ErrorClass.CONNECTION_LOST
    assert classify_error(ConnectionResetError()) is ErrorClass.CONNECTION_LOST
    assert classify_error(psycopg.DatabaseError("libpq lost the result")) is ErrorClass.CONNECTION_LOST
    assert classify_error(psycopg.DataError("NUL")) is ErrorClass.MEMBER
    assert classify_error(TypeError("no int")) is ErrorClass.MEMBER


def test_every_state_that_the_driver_knows_has_a_meaning() -> None:
    known = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, psycopg.Error)]
    states = {state for kind in known if (state := kind.sqlstate) is not None}
    assert len(states) > 200
    meant: dict[ErrorClass, set[str]] = {fault: set() for fault in ErrorClass}
    for state in states:
        meant[classify_error(errors.lookup(state)())].add(state)
    assert {"40001", "40P01", "55P03"} <= meant[ErrorClass.TRY_AGAIN]
    assert {"08006", "57P01", "57P02", "57P03", "25006"} <= meant[ErrorClass.CONNECTION_LOST]
    assert {"23505", "22001", "54000"} <= meant[ErrorClass.MEMBER]
    assert {"53100", "42501", "42P01", "57P04", "XX001", "28P01", "3D000"} <= meant[ErrorClass.BROKEN]
