"""A worker that is stopped in the middle of a heartbeat holds up nobody: the server ends its transaction (W6, W7)."""

import shutil
import signal
import time
from collections.abc import Generator

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.forking.freezing import await_stop
from tests.forking.processes import Process
from tests.postgres.server import Place
from tests.workers import app
from tests.workers.processes import await_note, folder_of, notes, open_gate, worker
from tests.workers.support import sound

pytestmark = pytest.mark.slow

LATE_SECONDS = 1.0
ROUNDS = 3
POLL_SECONDS = 0.02
MOST_SECONDS = 30.0
Seen = dict[str, tuple[str, float]]
"""The state of each worker, and the seconds that are left of its lease."""


@pytest.fixture
def store(postgres: Place) -> Generator[str]:
    yield postgres.url
    shutil.rmtree(folder_of(postgres.url))


def stopping(store: str, lease: str, where: str) -> Process:
    env = {app.FOLDER: str(folder_of(store))}
    return Process("tests.workers.stopped_beat:main", store, lease, where, env=env)


def look(connection: psycopg.Connection, schema: str) -> Seen:
    """By the clock of the server."""
    asked = SQL(
        "SELECT key, state, deadline_ms / 1000.0 - extract(epoch FROM clock_timestamp()) FROM {}.workers"
    ).format(Identifier(schema))
    return {key: (state, float(left)) for key, state, left in connection.execute(asked).fetchall()}


def keys_that_beat(store: str) -> set[str]:
    return {line[1] for line in notes(store) if line[0] == "beat"}


def lateness(store: str, place: Place, lease: str, where: str) -> float:
    """Stop a worker in the middle of a beat beside two others: by how many seconds any lease was overdue."""
    options = ("--lease", lease, "--no-same-host")
    until = time.monotonic() + MOST_SECONDS  # noqa: TID251 - a bound for real processes
    with (
        place.connect() as connection,
        stopping(store, lease, where) as frozen,
        worker(store, *options),
        worker(store, *options),
    ):
        await_note(store, "beat")
        (old,) = keys_that_beat(store)
        open_gate(store, "stop")
        await_stop(frozen)
        late, seen = 0.0, look(connection, place.schema)
        while seen[old][0] == "ACTIVE":
            assert time.monotonic() < until, seen  # noqa: TID251
            time.sleep(POLL_SECONDS)
            seen = look(connection, place.schema)
            late = max(late, *(-left for key, (state, left) in seen.items() if state == "ACTIVE" or key == old))
        frozen.send_signal(signal.SIGCONT)
        while keys_that_beat(store) == {old}:
            assert time.monotonic() < until, "it takes no new key"  # noqa: TID251
            time.sleep(POLL_SECONDS)
        assert look(connection, place.schema)[old][0] == "INACTIVE"
        frozen.send_signal(signal.SIGTERM)
        assert frozen.wait(MOST_SECONDS) == 0
    return late


@pytest.mark.parametrize(("lease", "where"), [("2", "before"), ("2", "after"), ("1", "after")])
def test_W6_a_worker_that_stops_in_the_middle_of_a_heartbeat_blocks_no_other_and_is_found_in_time(
    store: str, postgres: Place, lease: str, where: str
) -> None:
    """A machine that has too much to do may be late once; a lock that nobody can take is late every time."""
    took: list[float] = []
    while len(took) < ROUNDS and min(took, default=MOST_SECONDS) > LATE_SECONDS:
        took.append(lateness(store, postgres, lease, where))
        for name in ("stop", "notes"):
            (folder_of(store) / name).unlink()
    assert min(took) <= LATE_SECONDS, took
    sound(store)
