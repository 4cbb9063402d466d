"""The workloads of the open contract: starts by inserted rows, reports of an external executor, a foreign writer."""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw

import holdfast as hf
from benchmarks.measure import Sample, gather_bounded, percentile
from benchmarks.programs import sequence
from benchmarks.workloads import IN_FLIGHT, b1, open_engine
from holdfast import Engine

ROWS: Final = 100
"""Rows that the client inserts in one transaction."""
WARM_UP: Final = 100
BUSY_MS: Final = 5_000
PACE_SECONDS: Final = 0.01
"""The pause of a client that inserts up to 100 times a second."""
LONGER: Final = 4
"""Times the workflows of B1, so that the sample takes about a second."""
INSERT: Final = "INSERT INTO {schema}requests (request_id, workflow, input) VALUES ({mark}, 'sequence', '[0]')"
OPEN: Final = "SELECT activity_exec_id FROM {schema}open_activities LIMIT 1"
REPORT: Final = (
    "INSERT INTO {schema}activity_events (event_id, activity_exec_id, transition, payload, claim) "
    "VALUES ({mark}, {mark}, {mark}, {mark}, 'c')"
)
STATE: Final = "SELECT state FROM {schema}activity_event_status WHERE event_id = {mark}"
ENDED: Final = "SELECT count(*) FROM {schema}workflows WHERE workflow_exec_id LIKE {mark} AND closed_at_ms IS NOT NULL"
POLL_SECONDS: Final = 0.0005
ENDED_SECONDS: Final = 0.01

Statement = tuple[str, tuple[object, ...]]


@hf.activity(external=True, heartbeat=60)
async def external_step(number: int) -> int:
    """An activity that a program without Holdfast executes."""
    raise NotImplementedError


@hf.workflow
async def external_sequence(steps: int) -> int:
    """External activities one after the other."""
    for number in range(steps):
        await external_step(number)
    return steps


async def starts_by_client(store: Path | str, scale: float) -> Sample:
    """Starts of a workflow without steps by `client.start`, 50 in flight, until all have ended."""
    count = max(200, int(2_000 * scale))
    async with open_engine(store) as engine:

        async def one(number: int) -> None:
            await (await engine.start(sequence, 0, id=f"start-{number}")).result()

        await gather_bounded(one, WARM_UP, IN_FLIGHT, first=count)
        before = time.perf_counter()
        await gather_bounded(one, count, IN_FLIGHT)
        return {"starts_per_s": count / (time.perf_counter() - before)}


async def starts_by_rows(store: Path | str, scale: float) -> Sample:
    """The same by rows that another process inserts, 100 in a transaction."""
    count = max(200, int(2_000 * scale))
    async with open_engine(store):
        await _client("insert", str(store), "warm-up", str(WARM_UP))
        return {"starts_per_s": count / await _client("insert", str(store), "start", str(count))}


async def _client(*words: str) -> Any:
    """The JSON value that the program of a client prints."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.contract", *words, stdout=subprocess.PIPE
    )
    printed, _ = await program.communicate()
    return json.loads(printed)


async def round_trips(store: Path | str, scale: float) -> Sample:
    """One external activity at a time: READY seen, QUEUED, RUNNING and COMPLETED by rows, each answer read back."""
    count = max(20, int(200 * scale))
    async with Engine(store, workflows=[external_sequence], activities=[external_step]) as engine:
        times, _ = await asyncio.gather(
            _client("execute", str(store), str(count)), engine.run(external_sequence, count)
        )
    return {"p50_ms": percentile(times, 50), "p99_ms": percentile(times, 99)}


async def b1_longer(store: Path, scale: float) -> Sample:
    """B1 for as long as `b1_beside_writer`."""
    return await b1(store, LONGER * scale)


async def b1_beside_writer(store: Path, scale: float, pause_seconds: float) -> Sample:
    """B1 while another program inserts rows, each in a transaction of its own, with a pause behind each."""
    async with open_engine(store):
        pass  # makes the tables
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.contract", "disturb", str(store), str(pause_seconds), stdout=subprocess.PIPE
    )
    try:
        if program.stdout is None or not await program.stdout.readline():
            raise AssertionError("the program has inserted no row")
        return await b1(store, LONGER * scale)
    finally:
        program.kill()
        await program.wait()


# ---------------------------------------------------------------- programs of clients


class ForeignClient:
    """A connection of a program without Holdfast."""

    def __init__(self, store: str) -> None:
        self._is_postgres = "://" in store
        self._connection: Any
        if self._is_postgres:
            import psycopg  # noqa: PLC0415 - only with PostgreSQL

            url, _, schema = store.rpartition("schema=")
            self._connection = psycopg.connect(url.rstrip("?&"), autocommit=True)
            self._words = {"schema": f'"{schema}".', "mark": "%s"}
        else:
            self._connection = _open_file(store)
            self._words = {"schema": "", "mark": "?"}

    def run(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own."""
        cursor = self._connection.execute(text.format(**self._words), values)
        has_rows = not self._is_postgres or cursor.description
        rows: list[tuple[Any, ...]] = cursor.fetchall() if has_rows else []
        return rows

    def transaction(self, statements: Sequence[Statement]) -> None:
        """Run statements in one transaction."""
        self.run("BEGIN" if self._is_postgres else "BEGIN IMMEDIATE")
        for text, values in statements:
            self.run(text, *values)
        self.run("COMMIT")

    def wait_for(self, text: str, *values: object) -> Any:
        """The first value of a statement that finds a row sooner or later."""
        while not (rows := self.run(text, *values)):
            time.sleep(POLL_SECONDS)
        return rows[0][0]


def _open_file(store: str) -> Any:
    while not Path(store).exists():
        time.sleep(POLL_SECONDS)
    connection: Any = apsw.Connection(store)
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def insert(store: str, name: str, count: int) -> None:
    """Insert starts, 100 in a transaction, and print the seconds until all instances have ended."""
    client = ForeignClient(store)
    before = time.perf_counter()
    for first in range(0, count, ROWS):
        last = min(first + ROWS, count)
        client.transaction([(INSERT, (f"{name}-{number}",)) for number in range(first, last)])
    while client.run(ENDED, f"{name}-%")[0][0] < count:
        time.sleep(ENDED_SECONDS)
    print(time.perf_counter() - before)


def execute(store: str, count: int) -> None:
    """Execute external activities, and print the milliseconds of each."""
    client = ForeignClient(store)
    times: list[float] = []
    for number in range(count):
        exec_id = client.wait_for(OPEN)
        before = time.perf_counter()
        for transition in ("QUEUED", "RUNNING", "COMPLETED"):
            event_id = f"{transition}-{number}"
            client.run(REPORT, event_id, exec_id, transition, "1" if transition == "COMPLETED" else None)
            client.wait_for(f"{STATE} AND state <> 'NEW'", event_id)
        times.append((time.perf_counter() - before) * 1000)
    print(json.dumps(times))


def disturb(store: str, pause_seconds: float) -> None:
    """Insert traces, one in a transaction, until the process is killed. A line is printed after the first one."""
    client = ForeignClient(store)
    for number in itertools.count():
        client.run("INSERT INTO {schema}requests (request_id, workflow, manual) VALUES ({mark}, 'x', 1)", str(number))
        if not number:
            print("begun", flush=True)
        if pause_seconds:
            time.sleep(pause_seconds)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["insert", store, name, count]:
            insert(store, name, int(count))
        case ["execute", store, count]:
            execute(store, int(count))
        case ["disturb", store, pause_seconds]:
            disturb(store, float(pause_seconds))
        case _:
            sys.exit("insert STORE NAME COUNT, execute STORE COUNT, or disturb STORE SECONDS")
