"""The statements and migrations of the SQLite store."""

from typing import Final

from holdfast.storage.relational import migrations as history
from holdfast.storage.relational import statements as shared
from holdfast.storage.relational.migrations import Migration

PACKAGE: Final = "holdfast.storage.sqlite"

statements: Final = shared.Statements(PACKAGE)


def migrations() -> tuple[Migration, ...]:
    """The schema's history, oldest first."""
    return history.migrations(PACKAGE)
