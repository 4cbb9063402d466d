"""The statements and migrations of the SQLite store."""

from functools import lru_cache
from typing import Final

from holdfast.storage.relational import migrations as history
from holdfast.storage.relational import statements as shared
from holdfast.storage.relational.migrations import Migration

PACKAGE: Final = "holdfast.storage.sqlite"

statements: Final = shared.Statements(PACKAGE)


@lru_cache
def step_statements() -> shared.StepStatements:
    """The statements of every step."""
    return shared.StepStatements(statements)


def migrations() -> tuple[Migration, ...]:
    """The schema's history, oldest first."""
    return history.migrations(PACKAGE)
