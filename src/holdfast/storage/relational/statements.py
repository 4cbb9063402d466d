"""SQL files: the statements of a database, and the migrations of its schema.

``statements.commit_turn`` is ``sql/commit_turn.sql``. Most statements are the same for every database and are in this
package. A database that needs another text has a file of the same name in its own package, which takes precedence.
Shared statements are written for SQLite; `translate` makes them fit another database. A statement may contain the name
of a column list in braces (`records.COLUMNS`, `raw_tables.RAW_COLUMNS`), qualified with ``{inbox_columns:inbox}``, and
``{row_lock}`` behind a read whose rows must not change before the end of the transaction. ``{claim_keys:?3}`` is a read
of the keys in a parameter (`storage.versions.claim_keys`), with the columns `workflow` and `version`.

Migrations are numbered files. The number of a release is that of the newest migration it has. Every file has a line
``-- oldest: N``: the oldest release that works on tables with this migration. A migration that only adds (a table, a
column that may be null or has a constant default, an index) keeps the number of the release that made the tables. The
number grows when a migration removes something that older releases use; they refuse to open the store from then on.

A line ``-- optional`` marks a file that not every database can run and that the store can do without. A line
``-- outside of a transaction`` marks a file whose statements cannot run in one: ``CREATE INDEX CONCURRENTLY``.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from holdfast.core.checks import require
from holdfast.errors import ReleaseTooOld
from holdfast.storage.records import COLUMNS

SHARED: Final = "holdfast.storage.relational"
SUFFIX: Final = ".sql"
ColumnLists: TypeAlias = Mapping[str, tuple[str, ...]]


def _unchanged(text: str) -> str:
    return text


def files_of(package: str, folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder in a package: their names and texts, in no order."""
    place = Path(import_module(package).__path__[0], folder)
    if place.is_dir():
        return [(path.name, path.read_text("utf-8")) for path in place.iterdir() if path.name.endswith(SUFFIX)]
    # A package in an archive. This import takes longer than reading all files of a folder.
    from importlib.resources import files  # noqa: PLC0415

    entries = (files(package) / folder).iterdir()
    return [(entry.name, entry.read_text("utf-8")) for entry in entries if entry.name.endswith(SUFFIX)]


class _ColumnList(tuple[str, ...]):
    """A column list in a statement: ``{inbox_columns}``, or with the name of a table ``{inbox_columns:waiting}``."""

    __slots__ = ()

    def __format__(self, table: str) -> str:
        return ", ".join(f"{table}.{column}" if table else column for column in self)


class _ClaimKeys:
    """The read of the keys in a parameter: ``{claim_keys:?3}``."""

    def __init__(self, template: str) -> None:
        self._template = template

    def __format__(self, parameter: str) -> str:
        return self._template.format(parameter)


class Statements:
    """The statements of one database as attributes. All files are read when the object is made.

    Reading each file on first use would fail, or mix two releases, in a worker whose package is upgraded while it runs.
    """

    if TYPE_CHECKING:  # at run time a class with `__getattr__` has no fast path for its attributes

        def __getattr__(self, name: str) -> str: ...

    def __init__(
        self,
        package: str,
        *,
        raw_columns: ColumnLists,
        claim_keys: str,
        row_lock: str = "",
        translate: Callable[[str], str] = _unchanged,
    ) -> None:
        lists = {**COLUMNS, **raw_columns}
        parts: dict[str, object] = {name: _ColumnList(columns) for name, columns in lists.items()}
        parts["row_lock"] = row_lock
        parts["claim_keys"] = _ClaimKeys(claim_keys)
        for owner in (SHARED, package):  # a file of the database's own package replaces the shared one
            for name, content in files_of(owner, "sql"):
                lines = [line.strip() for line in content.splitlines()]
                text = " ".join([line for line in lines if not line.startswith("--")])
                statement = translate(text.format_map(parts).rstrip())
                setattr(self, name.removesuffix(SUFFIX), statement)


_OLDEST: Final = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)
_OUTSIDE: Final = re.compile(r"^-- outside of a transaction$", re.MULTILINE)
_OPTIONAL: Final = re.compile(r"^-- optional$", re.MULTILINE)
_NUMBER_DIGITS: Final = 4


class Migration(NamedTuple):
    """One change of the schema."""

    number: int
    script: str
    oldest: int
    """The oldest release, by its number, that works on tables with this migration."""
    is_outside: bool = False
    """It runs outside of a transaction, and is run again if it was interrupted."""
    is_optional: bool = False
    """The store works without it where the database cannot run it."""


@lru_cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of a database, oldest first."""
    return tuple(read(name, text) for name, text in sorted(files_of(package, "migrations")))


def read(name: str, text: str) -> Migration:
    """A migration, from the name and the text of its file."""
    found = _OLDEST.search(text)
    require(found is not None, f"the migration {name} has no line `-- oldest: N`")
    number = int(name[:_NUMBER_DIGITS])
    oldest = int(found[1]) if found else 0
    require(1 <= oldest <= number, f"the migration {name} cannot need release {oldest}")
    return Migration(number, text, oldest, bool(_OUTSIDE.search(text)), bool(_OPTIONAL.search(text)))


def check_release(place: object, *, found: int, oldest: int, newest: int) -> None:
    """Raise `ReleaseTooOld` if tables with migration `found` need a release from `oldest` on and this one is older."""
    if found > newest and oldest > newest:
        raise ReleaseTooOld(
            f"{place} was changed by a newer release (schema {found}) and needs one that knows schema {oldest}; "
            f"this one knows {newest}: upgrade"
        )
