"""A PostgreSQL server with the default settings of its release, for measurements that are published.

`$HOLDFAST_BENCH_POSTGRES` names another one by its URL, of a role that may create schemas and databases. The server of
the tests differs from the defaults in memory, autovacuum and the size of WAL segments; this one does not.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.postgres import programs
from tests.postgres.cluster import SAFE, SUPERUSER, Cluster, new_folder
from tests.postgres.places import begin_run, end_run

SERVER: Final = "HOLDFAST_BENCH_POSTGRES"
DEFAULTS: Final = {
    **SAFE,
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "autovacuum": "on",
}
"""The defaults of PostgreSQL, but for connections: engines with a pool for each process need more than 100."""


@contextmanager
def default_server() -> Generator[str]:
    """The URL of the server, which is removed at the end unless it was given."""
    if given := os.environ.get(SERVER):
        yield given
        return
    begin_run()
    cluster = Cluster(DEFAULTS, data=_initialised())
    try:
        cluster.start()
        yield cluster.url(tcp=True)
    finally:
        cluster.remove()
        end_run()


def _initialised() -> Path:
    """New data, with segments of the WAL of the default size."""
    data = new_folder() / "data"
    options = ("--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={SUPERUSER}")
    programs.run("initdb", *options, "-D", data)
    return data


@contextmanager
def fresh_database(server: str, name: str) -> Generator[str]:
    """The URL of a new database on a server, which is dropped at the end with all its connections."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield database_url(server, name)
        finally:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def database_url(server: str, name: str) -> str:
    """The URL of another database on the same server."""
    given: dict[str, Any] = conninfo_to_dict(server)
    user, host, port = (str(given.get(word) or "") for word in ("user", "host", "port"))
    if host.startswith("/"):
        return f"postgresql://{user}@/{name}?{urlencode({'host': host, 'port': port})}"
    password = f":{given['password']}" if given.get("password") else ""
    return f"postgresql://{user}{password}@{host}:{port or 5432}/{name}"


def server_version(server: str) -> str:
    """The release of a server."""
    with psycopg.connect(server, autocommit=True) as connection:
        [(version,)] = connection.execute("SHOW server_version").fetchall()
    return str(version)
