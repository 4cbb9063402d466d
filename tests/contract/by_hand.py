"""A client that only writes and reads rows: the `sqlite3` command or `psql`, each in a process of its own."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import programs
from tests.postgres.server import Place

SQLITE = shutil.which("sqlite3")
SETTINGS = ("PRAGMA wal_autocheckpoint=0;",)
"""As every example of the documentation."""
PRINTED = '[{"wal_autocheckpoint":0}]\n'
LIMIT_SECONDS = 60

needs_sqlite = pytest.mark.skipif(
    SQLITE is None, reason="the sqlite3 command is not installed: apt-get install sqlite3"
)


class Refused(Exception):
    """The database refused a statement."""


@dataclass(frozen=True)
class ByHand:
    """The tables of one store, as a program sees them that has no Holdfast."""

    store: str
    """The path or URL, as Holdfast reads it."""
    command: tuple[str, ...]
    is_postgres: bool

    def run(self, statements: str) -> str:
        """Run statements, and return what is printed."""
        done = subprocess.run(
            self.command, input=statements, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
        if done.returncode or "Error" in done.stderr or "ERROR" in done.stderr:
            raise Refused(done.stderr)
        return done.stdout.removeprefix(PRINTED)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        if self.is_postgres:
            query = f"SELECT coalesce(json_agg(found), '[]') FROM ({query}) AS found"  # noqa: S608
        printed = self.run(f"{query};")
        found: list[dict[str, Any]] = json.loads(printed) if printed.strip() else []
        return found


def sqlite_by_hand(path: Path, busy_ms: int = 5_000) -> ByHand:
    """A client of a file; its library is not the one that Holdfast uses."""
    command = ("sqlite3", "-batch", "-bail", "-json", "-cmd", f".timeout {busy_ms}", "-cmd", SETTINGS[0], str(path))
    return ByHand(str(path), command, is_postgres=False)


def postgres_by_hand(place: Place, user: str = "") -> ByHand:
    """A client of a schema that is in its search path."""
    server = place.server if not user else place.server.replace("//postgres@", f"//{user}@")
    command = programs.command(
        *("psql", "-v", "ON_ERROR_STOP=1", "-X", "-q", "-A", "-t", "-c", f"SET search_path = {place.schema}"),
        *("-f", "-", server),
    )
    return ByHand(place.url, tuple(command), is_postgres=True)


@pytest.fixture(params=[pytest.param("sqlite", marks=needs_sqlite), "postgres"])
def by_hand(request: pytest.FixtureRequest) -> ByHand:
    """Both stores. The tables are made when an engine opens the store."""
    if request.param == "postgres":
        return postgres_by_hand(request.getfixturevalue("postgres"))
    return sqlite_by_hand(request.getfixturevalue("tmp_path") / "shop.db")
