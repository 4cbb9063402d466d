"""A PostgreSQL for ordinary tests: one server for each test process, started by the first test that asks for it.

`$HOLDFAST_TEST_POSTGRES` names another one, as a URL that libpq understands, of a role that may create schemas. Every
test has a schema of its own, which is dropped after it.
"""

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from tests.postgres.cluster import FAST, Cluster

GIVEN = "HOLDFAST_TEST_POSTGRES"
DROP_PATIENCE_MS = 10_000

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """A schema that is a test's own. It does not exist before the test makes it."""

    server: str
    """The URL of the database, as libpq reads it."""
    schema: str

    @property
    def url(self) -> str:
        """The same with the schema, as Holdfast reads it."""
        return f"{self.server}{'&' if '?' in self.server else '?'}schema={self.schema}"

    def connect(self) -> psycopg.Connection:
        """A connection of the test's own."""
        return psycopg.connect(self.server, autocommit=True, prepare_threshold=None)

    def drop(self) -> None:
        """Remove the schema. Whoever still has it open holds a lock that ends this with an error."""
        with self.connect() as connection:
            connection.execute(sql.SQL("SET lock_timeout = {}").format(DROP_PATIENCE_MS))
            connection.execute("SET client_min_messages = warning")
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))


@contextmanager
def server() -> Generator[str]:
    """The URL of a server for this process."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    cluster = Cluster(FAST)
    try:
        cluster.start()
        yield cluster.url()
    finally:
        cluster.remove()


@contextmanager
def place(url: str) -> Generator[Place]:
    """A schema for one test."""
    mine = Place(url, f"holdfast_test_{os.getpid()}_{next(_numbers)}")
    try:
        yield mine
    finally:
        mine.drop()
