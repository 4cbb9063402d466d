"""The history of a database's schema, in numbered files: what each adds, and which releases can go on beside it.

The number of a release is that of the newest migration it knows. Every file says with a line ``-- oldest: N`` which
release is the oldest that works on tables that have it. For a migration that only adds (a table, a column that may be
null or has a constant default, an index) that is the number of the release that made the tables. It grows when
something goes that older releases use; then those refuse the store, and have to be stopped before.

A line ``-- optional`` marks a file that not every database can run, and that the store can do without. A line
``-- outside of a transaction`` marks a file whose statements cannot run in one: ``CREATE INDEX CONCURRENTLY``.
"""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from holdfast.core.require import require
from holdfast.errors import ReleaseTooOld

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
