"""Writes the stores of a release: a SQLite file and a dump of a PostgreSQL schema, with open instances of every kind.

For the next release, when its stored formats are final, and with the code of that release:

1. If the release has new kinds of instances, add definitions to `app.py`, instances to `begin`, and their ends to
   `test_releases.py`, which finishes those that the store has.
2. Run ``python -m tests.releases.write``. It starts a PostgreSQL server of its own and writes the folder
   ``tests/releases/<version>``.
3. Run ``pytest tests/releases`` and check the folder in. Folders of older releases are never written again.

The clock of the writing process is in the past, so that timers and leases have run out on every machine that opens the
store. The process ends without leaving, as a worker does that dies. Paths and host names are then removed.
"""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from tests.postgres import programs
from tests.postgres.places import begin_run, end_run
from tests.postgres.server import Place, place, server
from tests.releases import app

import holdfast as hf
from holdfast import compose
from holdfast.runtime.platform import ClockAndIds, Platform, SystemClockAndIds
from holdfast.storage.relational.raw_tables import RawAttempt, RawInstance

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
SCHEMA: Final = "schema_of_the_release"
PAST_MS: Final = 1_735_689_600_000  # 2025-01-01
NOT_FOR_ALL: Final = ("--", "\\", "SET transaction_timeout")
"""Lines of a dump that psycopg, or an older server, cannot run."""
NEUTRAL: Final = b"/app"
HOST: Final = {"boot_id": "0", "namespace": 0, "pid": 1, "started": 0, "name": "host"}


class PastClock:
    """The clocks and ids of the system, with a wall clock that begins in the past. Not a subclass: PostgreSQL's store
    takes the time of the server if it is given the clock of the system."""

    def __init__(self) -> None:
        self._system = SystemClockAndIds()
        self._begin_ms = self._system.elapsed_ms()

    def now_ms(self) -> int:
        return PAST_MS + self._system.elapsed_ms() - self._begin_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


async def begin(store: str) -> None:
    """Start every instance and wait until each stays as it is. Then the process ends as one that is killed."""
    app.Switch.is_recording = True
    platform = Platform(providers=cast("ClockAndIds", PastClock()))

    def engine_of(*workflows: hf.Workflow[..., Any], flows: Sequence[hf.Flow] = app.FLOWS) -> hf.Engine:
        return hf.Engine(
            store,
            workflows=workflows,
            activities=app.ACTIVITIES,
            flows=flows,
            queues=["default"],
            _platform=platform,
        )

    async with engine_of(app.blocks, app.child) as engine:
        await engine.start(app.blocks, id="blocks")
        await _at_rest(store)
    async with engine_of(app.blocks_changed, flows=()) as engine:
        await engine.get("blocks").raise_event("go")
        await _at_rest(store)
    engine = engine_of(*(each for each in app.WORKFLOWS if each.name not in ("blocks", "begins_later")))
    await engine.open()
    for workflow in (app.retries, app.queued, app.sleeps, app.listens, app.parent, app.streams, app.updates, app.keeps):
        await engine.start(workflow, id=workflow.name)
    for workflow in (app.runs_while_the_worker_dies, app.cleans_up):
        await engine.start(workflow, id=workflow.name)
    await engine.start(app.continues, id="continues")
    await engine.start(app.reads, "x" * app.LARGE, id="reads", deadline=timedelta(days=10_000))
    await engine.start("begins_later", 11, id="begins_later")
    for flow, given in (("waits", {}), ("many", {"numbers": [1, 2, 3]}), ("rounds", {}), ("family", {})):
        await engine.start(flow, given, id=flow)
    await _at_rest(store)
    await engine.get("listens").raise_event("early", "early")
    await engine.get("listens").raise_event("spare", "nobody waits for this one")
    await engine.get("cleans_up").cancel("a test")
    waiting = asyncio.create_task(engine.get("updates").update("take", 9, id="u1"))
    await _at_rest(store)
    waiting.cancel()
    os._exit(0)


async def _at_rest(store: str) -> None:
    """Wait until nothing has changed for two seconds."""
    before: object = None
    while (now := _snapshot(store)) != before:
        before = now
        await asyncio.sleep(2)


def _snapshot(store: str) -> object:
    tables = compose.open_tables(store)
    try:
        instances = [(each.id, each.state, each.turn) for each in tables.instances() if isinstance(each, RawInstance)]
        attempts = [(each.number, each.state) for each in tables.attempts() if isinstance(each, RawAttempt)]
        return instances, attempts, len(list(tables.messages()))
    finally:
        tables.close()


# ---------------------------------------------------------------- files


def write(folder: Path) -> None:
    """Both stores, into a new folder."""
    folder.mkdir()
    _write_file(folder / "store.sqlite")
    begin_run()
    try:
        with server() as url, place(url) as temporary:
            mine = Place(temporary.server, SCHEMA)
            _write_dump(mine, folder / "postgres.dump")
            mine.drop()
    finally:
        end_run()


def _in_a_process(store: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.releases.write", "begin", store], cwd=ROOT, check=True)


def _write_file(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.sqlite"
        _in_a_process(str(store))
        connection = sqlite3.connect(store, isolation_level=None)
        columns = [
            (table, column)
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
            if kind in ("TEXT", "BLOB")
        ]
        connection.create_function("cleaned", 1, _clean)
        for table, column in columns:
            change = f"UPDATE {table} SET {column} = cleaned({column}) WHERE instr({column}, ?)"  # noqa: S608 - our names
            connection.execute(change, (str(ROOT),))
        connection.execute("UPDATE workers SET host = ?", (json.dumps(HOST).encode(),))
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        target.write_bytes(store.read_bytes())


def _write_dump(mine: Place, target: Path) -> None:
    mine.drop()
    _in_a_process(mine.url)
    with mine.connect() as connection:
        connection.execute(f"SET search_path = {SCHEMA}")
        connection.execute("UPDATE workers SET host = %s", (json.dumps(HOST).encode(),))
    options = ("--inserts", "--no-owner", "--no-privileges", f"--schema={SCHEMA}")
    dumped = programs.run("pg_dump", *options, mine.server)
    lines = [line for line in dumped.splitlines() if line and not line.startswith(NOT_FOR_ALL)]
    target.write_text(re.sub(r"\\x([0-9a-f]+)", _clean_bytes, "\n".join(lines)) + "\n", encoding="utf-8")


def _clean(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.replace(str(ROOT).encode(), NEUTRAL)
    return value.replace(str(ROOT), NEUTRAL.decode()) if isinstance(value, str) else value


def _clean_bytes(found: re.Match[str]) -> str:
    return f"\\x{_clean(bytes.fromhex(found.group(1))).hex()}"


def main() -> None:
    """Without an argument, write the folder of this release; `begin` is for the process that writes a store."""
    if sys.argv[1:2] == ["begin"]:
        asyncio.run(begin(sys.argv[2]))
        return
    folder = FOLDER / hf.__version__
    write(folder)
    sys.stdout.write(f"{folder.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
