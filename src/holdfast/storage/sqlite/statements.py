"""The statements and migrations of the SQLite store."""

from typing import Final

from holdfast.storage.relational import statements as shared

PACKAGE: Final = "holdfast.storage.sqlite"

statements: Final = shared.Statements(PACKAGE)


def migrations() -> list[tuple[int, str]]:
    """The schema's history: number and script, oldest first."""
    return shared.migrations(PACKAGE)
