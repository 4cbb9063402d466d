"""The PostgreSQL server of a measurement: the one that a variable names, or one for the time of the run."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from tests.postgres.cluster import SAFE, Cluster
from tests.postgres.places import begin_run, end_run

SERVER: Final = "HOLDFAST_BENCH_POSTGRES"


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
