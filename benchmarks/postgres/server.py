"""The PostgreSQL server of a measurement: the one that a variable names, or one for the time of the run."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from tests.postgres.cluster import SAFE, Cluster
from tests.postgres.places import begin_run, end_run

SERVER: Final = "HOLDFAST_BENCH_POSTGRES"
NANOSECONDS: Final = 1e9


@contextmanager
def bench_server() -> Generator[str]:
    """The URL of a server with full durability."""
    if given := os.environ.get(SERVER):
        yield given
        return
    begin_run()
    cluster = Cluster(SAFE)
    try:
        cluster.start()
        yield cluster.url()
    finally:
        cluster.remove()
        end_run()


def processor_seconds_of(server: str) -> float:
    """The processor time of all processes of a server on this machine, of those that have ended only in part; 0 if it
    is on another machine.
    """
    with psycopg.connect(server, autocommit=True) as connection:
        [(folder,)] = connection.execute("SHOW data_directory").fetchall()
    try:
        postmaster = Path(folder, "postmaster.pid").read_text(encoding="ascii").splitlines()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    return sum(map(_processor_seconds, children))


def _processor_seconds(pid: str) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / NANOSECONDS
    except OSError:
        return 0.0
