"""Statements by the names of their files: ``statements.commit_turn`` is ``sql/commit_turn.sql``.

Most of them are the same for every database and are in this package. What a database has to say differently is a file
of the same name in its own package, which is found first. The shared ones are written for SQLite; a `translate` makes
them fit another database where a rule for all of them does.

The history of a database's schema, in numbered files: what each adds, and which releases can go on beside it.

The number of a release is that of the newest migration it knows. Every file says with a line ``-- oldest: N`` which
release is the oldest that works on tables that have it. For a migration that only adds (a table, a column that may be
null or has a constant default, an index) that is the number of the release that made the tables. It grows when
something goes that older releases use; then those refuse the store, and have to be stopped before.

A line ``-- optional`` marks a file that not every database can run, and that the store can do without. A line
``-- outside of a transaction`` marks a file whose statements cannot run in one: ``CREATE INDEX CONCURRENTLY``.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from holdfast.core.checks import require
from holdfast.errors import ReleaseTooOld

SHARED: Final = "holdfast.storage.relational"
SUFFIX: Final = ".sql"


def _as_it_is(text: str) -> str:
    return text


class Statements:
    """The statements of one database. All files are read together, at the latest when a store opens.

    Reading each file when it is first needed would fail, or mix two releases, in a worker whose package is upgraded
    while it runs.
    """

    def __init__(self, package: str, translate: Callable[[str], str] = _as_it_is) -> None:
        self._package = package
        self._translate = translate
        self._is_loaded = False

    def load(self) -> None:
        """Read every file. Further calls do nothing."""
        if self._is_loaded:
            return
        for package in (SHARED, self._package):  # a file of the database's own package replaces the shared one
            for source in (files(package) / "sql").iterdir():
                if source.name.endswith(SUFFIX):
                    lines = source.read_text(encoding="utf-8").splitlines()
                    text = " ".join(line.strip() for line in lines if not line.lstrip().startswith("--"))
                    setattr(self, source.name.removesuffix(SUFFIX), self._translate(text))
        self._is_loaded = True

    def __getattr__(self, name: str) -> str:
        if name.startswith("_") or self._is_loaded:
            raise AttributeError(name)
        self.load()
        statement: str = getattr(self, name)
        return statement


class StepStatements:
    """The statements of every step and every event, read when they are put together.

    Python leaves its fast path for every attribute of a class that has `__getattr__`, as `Statements` has: such a look
    costs more than binding the values of the statement.
    """

    __slots__ = (
        "append_history",
        "close_instance",
        "commit_flow_turn",
        "commit_turn",
        "has_pending",
        "has_read_all",
        "insert_attempt",
        "move_attempt",
        "set_awaited_events",
        "start_instance",
    )

    def __init__(self, statements: Statements) -> None:
        self.append_history = statements.append_history
        self.set_awaited_events = statements.set_awaited_events
        self.close_instance = statements.close_instance
        self.commit_flow_turn = statements.commit_flow_turn
        self.commit_turn = statements.commit_turn
        self.has_pending = statements.has_pending
        self.has_read_all = statements.has_read_all
        self.insert_attempt = statements.insert_attempt
        self.move_attempt = statements.move_attempt
        self.start_instance = statements.start_instance


_OLDEST: Final = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)
_OUTSIDE: Final = re.compile(r"^-- outside of a transaction$", re.MULTILINE)
_OPTIONAL: Final = re.compile(r"^-- optional$", re.MULTILINE)
_NUMBER_DIGITS: Final = 4


class Migration(NamedTuple):
    """One step of the history."""

    number: int
    script: str
    oldest: int
    """The oldest release, by its number, that works on tables that have this."""
    is_outside: bool = False
    """It runs outside of a transaction, and is begun again when it was interrupted."""
    is_optional: bool = False
    """The store can do without, where the database does not know how."""


@lru_cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The history of a database's schema, oldest first."""
    folder = files(package) / "migrations"
    scripts = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return tuple(read(entry.name, entry.read_text(encoding="utf-8")) for entry in scripts)


def read(name: str, text: str) -> Migration:
    """A migration, from the name and the text of its file."""
    found = _OLDEST.search(text)
    require(found is not None, f"the migration {name} does not say which release is the oldest that works with it")
    number, oldest = int(name[:_NUMBER_DIGITS]), int(found[1]) if found else 0
    require(1 <= oldest <= number, f"the migration {name} cannot need a release that knows {oldest}")
    return Migration(number, text, oldest, bool(_OUTSIDE.search(text)), bool(_OPTIONAL.search(text)))


def check_release(place: object, *, found: int, oldest: int, newest: int) -> None:
    """Refuse tables that this release is too old for: `found` is their number, `oldest` what they need."""
    if found > newest and oldest > newest:
        raise ReleaseTooOld(
            f"{place} was changed by a newer release (schema {found}) and needs one that knows schema {oldest}; "
            f"this one knows {newest}: upgrade"
        )
