"""A PostgreSQL cluster of one's own, to be started, stopped, killed and thrown away.

A new one is a copy of a template that each test run makes once. It listens on a socket in its own folder and on a port
of 127.0.0.1, which is outside of the range from which the system takes ports: otherwise somebody else could have it
while the server is restarted.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
from tests.postgres import places, programs

SUPERUSER = "postgres"
FIRST_PORT, PORTS = 20_000, 10_000
LIMIT_SECONDS = 30.0
GLANCE_SECONDS = 0.01
AGAIN_SECONDS = 0.2
START_TRIES = 20
CHILDREN_LEFT = "is still in use"
READY = ("ready", "standby")
STATUS_LINE = 7
SAFE: Mapping[str, str] = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
FAST: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
"""What is lost when the machine fails, and only then."""
SETTINGS: Mapping[str, str] = {
    "max_connections": "100",
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "unix_socket_permissions": "0777",
    "log_line_prefix": "%m [%p] ",
}
SUPERVISOR = """
exec 3<&0
"$@" 3<&- & server=$!
(read _; kill -QUIT $server 2>/dev/null) <&3 3<&- & watcher=$!
wait $server
kill $watcher 2>/dev/null
"""
"""Ends with the server, and ends the server when its input ends, which it does when the test process is gone."""

TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name LIKE %s
"""

_numbers = itertools.count()
_ports: set[int] = set()


class Cluster:
    """One server and its data."""

    def __init__(self, settings: Mapping[str, str] = SAFE, *, data: Path | None = None) -> None:
        """A stopped cluster, with the data of the template or with data that somebody else made for it."""
        self.folder = new_folder() if data is None else data.parent
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = free_port()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._hosts = "127.0.0.1"
        if data is None:
            _copy(_template(), self.data)
        self.configure({**SETTINGS, **settings})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Settings for the next start."""
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def welcome(self, address: str, network: str) -> None:
        """Listen on another address as well, after the next start, and let in who comes from a network."""
        self._hosts = f"127.0.0.1,{address}"
        with (self.data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write(f"host all all {network} trust\n")

    def url(self, *, tcp: bool = False, port: int | None = None, database: str = "postgres") -> str:
        """Where it is, as libpq reads it: by its socket, or over 127.0.0.1, if need be at another's port."""
        if tcp or port is not None:
            return f"postgresql://{SUPERUSER}@127.0.0.1:{port or self.port}/{database}"
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    @property
    def pid(self) -> int:
        """The postmaster's."""
        return int(self._status()[0])

    def start(self) -> None:
        """Start it, and wait until it takes connections.

        One that was killed leaves children that need a moment to notice; until then it cannot be started.
        """
        before, words = self._status(), ""
        for _ in range(START_TRIES):
            said = self.log.stat().st_size if self.log.exists() else 0
            self._supervisor = self._begin()
            if self._became_ready(self._supervisor, before):
                return
            self._forget()
            words = self.log.read_bytes()[said:].decode(errors="replace")
            if CHILDREN_LEFT not in words:
                break
            time.sleep(AGAIN_SECONDS)
        raise RuntimeError(f"PostgreSQL did not start:\n{words}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it as `pg_ctl stop -m MODE` does, and wait until it is gone."""
        programs.run("pg_ctl", "stop", "-w", "-m", mode, "-D", self.data)
        self._forget()

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it. With the mode `immediate` it comes back by crash recovery."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL for the postmaster. Its children end by themselves as soon as they notice."""
        os.kill(self.pid, signal.SIGKILL)
        self._forget()

    def terminate_backends(self, application_name: str = "%") -> int:
        """End the connections of clients, and say how many there were."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            ended = connection.execute(TERMINATE, (application_name,)).fetchall()
        return sum(was_ended for (was_ended,) in ended)

    def remove(self) -> None:
        """Stop it without ceremony and remove its data."""
        if self._supervisor is not None:
            self._forget()
        shutil.rmtree(self.folder, ignore_errors=True)
        _ports.discard(self.port)

    def _begin(self) -> subprocess.Popen[bytes]:
        options = ("-k", self.folder, "-h", self._hosts, "-p", str(self.port))
        server = programs.command("postgres", "-D", self.data, *options)
        return programs.begin(["sh", "-c", SUPERVISOR, "sh", *server], self.log)

    def _became_ready(self, supervisor: subprocess.Popen[bytes], before: list[str]) -> bool:
        """Whether it takes connections. What was in its file before is of one that was killed."""
        while supervisor.poll() is None:
            status = self._status()
            if len(status) > STATUS_LINE and status[STATUS_LINE].strip() in READY and status[:3] != before[:3]:
                return True
            time.sleep(GLANCE_SECONDS)
        return False

    def _status(self) -> list[str]:
        with suppress(FileNotFoundError):
            return (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        return []

    def _forget(self) -> None:
        """Let the supervisor end what is left, and wait for it."""
        if self._supervisor is not None:
            self._supervisor.communicate(timeout=LIMIT_SECONDS)
            self._supervisor = None


def new_folder() -> Path:
    """For one cluster, of whoever runs PostgreSQL."""
    folder = places.of_run() / f"{os.getpid()}-{next(_numbers)}"
    folder.mkdir()
    programs.give(folder)
    return folder


def _template() -> Path:
    """An initialised cluster that was never started. Made once for all processes of the run."""
    template = places.of_run() / "template"
    with places.alone("template"):
        if not template.exists():
            places.sweep()
            draft = places.of_run() / "template-draft"
            draft.mkdir(exist_ok=True)
            programs.give(draft)
            data = draft / "data"
            options = ("--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={SUPERUSER}")
            programs.run("initdb", *options, "--wal-segsize=1", "-D", data)  # small ones are copied faster
            draft.rename(template)
    return template / "data"


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        programs.give(path)
    target.chmod(0o700)


def free_port() -> int:
    """One on which nobody listens, and which the system gives to nobody by itself."""
    for port in _candidates():
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _ports.add(port)
            return port
    raise RuntimeError("there is no free port")


def _candidates() -> Iterator[int]:
    first = os.getpid() * 37
    return (port for step in range(PORTS) if (port := FIRST_PORT + (first + step) % PORTS) not in _ports)
