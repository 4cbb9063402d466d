"""A signal that comes while ``holdfast worker`` is still starting: it leaves, and says so (W10). Real processes."""

import fcntl
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import apsw
import psycopg
import pytest
from tests.postgres.server import Place
from tests.scenarios.support import together
from tests.workers.processes import APP, LONGEST_SECONDS, POLL_SECONDS, ROOT, Process

import holdfast as hf
from holdfast.audit.auditor import audit

if TYPE_CHECKING:
    from holdfast.storage.sqlite.connection import SqliteConnection

pytestmark = pytest.mark.slow

NOBODY = "postgresql://127.0.0.1:1/nothing"
SLOW_TO_IMPORT = """
import pathlib, time
pathlib.Path(__file__).with_suffix(".began").touch()
try:
    time.sleep(3_600)
except Exception:
    pass
"""


@contextmanager
def starting(store: str, app: str = APP) -> Generator[Process]:
    process = Process(store, "worker", app, is_fresh=True)
    try:
        yield process
    finally:
        process.end()


def await_line(process: Process, words: str) -> None:
    """Until it has logged that."""
    stream = process.log
    while words not in (line := stream.readline()):
        assert line, f"it ended without saying {words!r}"


def left_cleanly(process: Process, *, number: signal.Signals = signal.SIGTERM) -> None:
    process.send_signal(number)
    code, logged = process.left(10)
    assert code == 0, logged
    assert f"{number.name}: the worker ends before it has started" in logged
    assert "Traceback" not in logged
    assert not any(line.startswith("holdfast: ") for line in logged.splitlines()), "no error is told"


def await_that(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LONGEST_SECONDS  # noqa: TID251 - a bound for real processes
    while not condition():
        assert time.monotonic() < until, what  # noqa: TID251
        time.sleep(POLL_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_W10_a_worker_that_imports_its_program_leaves_at_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLOW_TO_IMPORT, "utf-8")
    with starting(str(tmp_path / "shop.db"), str(program)) as process:
        await_that(program.with_suffix(".began").exists, "the import did not begin")
        left_cleanly(process, number=number)
    assert not (tmp_path / "shop.db").exists()


SIGNAL_AT_AN_IMPORT = """
import os, signal, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Hook())
sys.argv = ["holdfast", "worker", "tests.workers.app", "--store", {store!r}]
from holdfast.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["click", "holdfast.cli.worker", "holdfast.client.client", "tests.workers.app"])
def test_W10_a_worker_leaves_at_a_signal_whatever_it_imports(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    code = SIGNAL_AT_AN_IMPORT.format(module=module, number=int(number), store=str(tmp_path / "shop.db"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert f"{number.name}: the worker ends before it has started" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "shop.db").exists()


def test_W10_a_signal_is_kept_until_the_event_loop_runs(tmp_path: Path) -> None:
    """One that comes in a callback of asyncio, which logs every exception and continues."""
    code = (
        "import asyncio, os, signal, sys\n"
        "import holdfast.cli.worker as worker\n"
        "class Asyncio:\n"
        "    def __getattr__(self, name): return getattr(asyncio, name)\n"
        "    def run(self, main): return asyncio.run(first(main))\n"
        "async def first(main):\n"
        "    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.sleep(0)\n"
        "    return await main\n"
        "worker.asyncio = Asyncio()\n"
        f"sys.argv = ['holdfast', 'worker', 'tests.workers.app', '--store', {str(tmp_path / 'shop.db')!r}]\n"
        "from holdfast.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "SIGTERM: the worker ends before it has started" in done.stderr
    assert "Traceback" not in done.stderr


def test_W10_a_program_that_swallows_the_signal_is_ended_after_two_seconds(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        SLOW_TO_IMPORT.replace("except Exception", "except BaseException") + "time.sleep(3_600)", "utf-8"
    )
    with starting(str(tmp_path / "shop.db"), str(program)) as process:
        await_that(program.with_suffix(".began").exists, "the import did not begin")
        process.send_signal(signal.SIGTERM)
        code, logged = process.left(10)
    assert code == 0, logged


def test_W10_a_worker_that_registers_in_a_locked_database_leaves_at_a_signal(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def make() -> None:
        await (await hf.connect(store)).close()

    together(make())
    holder = cast("SqliteConnection", apsw.Connection(str(store)))
    holder.execute("BEGIN IMMEDIATE")
    try:
        with (tmp_path / "shop.db-lock").open("w") as lock, starting(str(store)) as process:
            await_that(lambda: _is_locked(lock), "it does not begin to write")
            left_cleanly(process)
    finally:
        holder.close()
    assert audit(str(store)) == []


def _has_open(descriptors: Path, wanted: Path) -> bool:
    """Whether a process has this file open."""
    for entry in descriptors.iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            if entry.resolve() == wanted.resolve():
                return True
    return False


def _is_locked(file: IO[str]) -> bool:
    """Whether another process has the lock of writers."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_W10_a_worker_that_cannot_reach_its_store_leaves_at_a_signal(number: signal.Signals) -> None:
    with starting(NOBODY) as process:
        await_line(process, "cannot be made, and is tried again")
        left_cleanly(process, number=number)


@contextmanager
def silent_server() -> Generator[socket.socket]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_W10_a_worker_whose_server_does_not_answer_leaves_at_a_signal() -> None:
    with silent_server() as server, starting(f"postgresql://127.0.0.1:{server.getsockname()[1]}/shop") as process:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1), "it asks"
            left_cleanly(process)


def test_W10_a_second_signal_ends_a_start_at_once() -> None:
    with silent_server() as server, starting(f"postgresql://127.0.0.1:{server.getsockname()[1]}/shop") as process:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1), "it asks"
            process.send_signal(signal.SIGTERM)
            await_line(process, "ends before it has started")
            process.send_signal(signal.SIGTERM)
            code, logged = process.left(10)
            assert code == 130, logged
            assert "Traceback" not in logged


def test_W10_a_worker_that_waits_to_be_registered_leaves_at_a_signal(postgres: Place) -> None:
    async def make() -> None:
        await (await hf.connect(postgres.url)).close()

    together(make())
    with (
        postgres.connect() as watching,
        postgres.connect() as connection,
        connection.transaction(),
        starting(postgres.url) as process,
    ):
        connection.execute(f'LOCK TABLE "{postgres.schema}".workers IN ACCESS EXCLUSIVE MODE'.encode())
        await_that(lambda: waiters(watching, "workers"), "nobody waits")
        left_cleanly(process)
    assert audit(postgres.url) == []


def test_W10_a_worker_that_waits_for_a_migration_leaves_at_a_signal(postgres: Place) -> None:
    """Somebody is in the middle of a migration. What comes after the worker finds the store as it was."""
    with postgres.connect() as connection:
        connection.execute(f'CREATE SCHEMA "{postgres.schema}"'.encode())
        connection.execute(f'CREATE TABLE "{postgres.schema}".migrations (number INT PRIMARY KEY)'.encode())
        with connection.transaction(), postgres.connect() as watching:
            connection.execute(f'LOCK TABLE "{postgres.schema}".migrations IN ACCESS EXCLUSIVE MODE'.encode())
            with starting(postgres.url) as process:
                await_that(lambda: waiters(watching, "migrations"), "nobody waits")
                left_cleanly(process)
        connection.execute(f'DROP SCHEMA "{postgres.schema}" CASCADE'.encode())


def waiters(connection: psycopg.Connection, table: str) -> bool:
    """Whether somebody waits for a lock on that table."""
    asked = "SELECT 1 FROM pg_locks JOIN pg_class ON pg_class.oid = relation WHERE NOT granted AND relname = %s"
    return bool(connection.execute(asked, (table,)).fetchall())


def test_W10_a_worker_that_waits_for_a_locked_file_leaves_at_a_signal(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    with (tmp_path / "shop.db-gate").open("w") as gate, (tmp_path / "shop.db-lock").open("w") as lock:
        for file in (gate, lock):
            fcntl.flock(file, fcntl.LOCK_EX)
        with starting(str(store)) as process:
            descriptors = Path(f"/proc/{process.pid}/fd")
            await_that(lambda: _has_open(descriptors, Path(gate.name)), "it does not come to the gate")
            left_cleanly(process)
    with starting(str(store)) as process:
        assert process.headline().startswith("worker ")
        process.send_signal(signal.SIGTERM)
        assert process.left()[0] == 0
    assert audit(str(store)) == []
