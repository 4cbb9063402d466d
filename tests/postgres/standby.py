"""A primary and a synchronous standby, two clusters on this machine, and a failover from one to the other.

A commit is acknowledged when both have it on disk. So whatever was acknowledged is there after the primary is lost.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from tests.postgres import programs
from tests.postgres.cluster import SAFE, SUPERUSER, Cluster, new_folder

NAME = "second"
TRIES = 400
PAUSE_SECONDS = 0.05


class Pair:
    """Two clusters. Clients are told of both, and use the one that can be written."""

    def __init__(self, primary: Cluster, standby: Cluster) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def url(self) -> str:
        """Both, for libpq."""
        hosts = ",".join(f"127.0.0.1:{cluster.port}" for cluster in (self.primary, self.standby))
        return f"postgresql://{SUPERUSER}@{hosts}/postgres?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary, and make the standby the primary. The old one must not come back as it is."""
        self.primary.kill()
        programs.run("pg_ctl", "promote", "-w", "-D", self.standby.data)


@contextmanager
def pair() -> Generator[Pair]:
    """A running pair in which every commit waits for the standby."""
    primary = Cluster(SAFE)
    clusters = [primary]
    try:
        primary.start()
        standby = _copy_of(primary)
        clusters.append(standby)
        standby.start()
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            connection.execute("SELECT pg_reload_conf()")
            _wait_until_synchronous(connection)
        yield Pair(primary, standby)
    finally:
        for cluster in clusters:
            cluster.remove()


def _wait_until_synchronous(connection: "psycopg.Connection[Any]") -> None:
    """Waits until the server has reloaded its settings, which it does after `pg_reload_conf` has returned."""
    pause = threading.Event()
    states: list[Any] = []
    for _ in range(TRIES):
        states = connection.execute("SELECT application_name, sync_state FROM pg_stat_replication").fetchall()
        if states == [(NAME, "sync")]:
            return
        pause.wait(PAUSE_SECONDS)
    raise AssertionError(f"the standby did not become synchronous: {states}")


def _copy_of(primary: Cluster) -> Cluster:
    folder = new_folder()
    source = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name={NAME}"
    options = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")
    programs.run("pg_basebackup", *options, f"--dbname={source}", "-D", folder / "data")
    return Cluster({**SAFE, "synchronous_standby_names": ""}, data=folder / "data")
