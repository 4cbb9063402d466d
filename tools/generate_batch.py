"""Writes the migration that makes the function of `storage.postgres.optimistic.group_function`.

``python -m tools.generate_batch`` starts a PostgreSQL server of its own, which knows the type of every parameter from
the tables. A test compares the file that is checked in with the text that this tool would write. The text of a file
that a release has shipped never changes: if a statement of the function changes, raise the number in
`group_function.FUNCTION`, name a new file in `TARGET`, and run the tool.
"""

from pathlib import Path
from typing import Any, Final

from tests.postgres.places import begin_run, end_run
from tests.postgres.server import Place, place, server

from holdfast.storage.postgres.optimistic.group_function import BATCHED, FRAME, TypedStatement, definition
from holdfast.storage.postgres.transaction import migrations, statements_of

TARGET: Final = Path("src/holdfast/storage/postgres/migrations/0015_changes.sql")
HEAD: Final = """-- Written by tools/generate_batch.py from the statements of the store, see `group_function.py`.
-- Writes a group in one call, and fails if one of its statements does not change the rows that it is for.
-- oldest: 14
-- optional

"""


def generate(mine: Place) -> str:
    """The migration. The schema of `mine` is used for nothing else."""
    schema = mine.schema
    statements = statements_of(schema)

    def text_of(name: str) -> str:
        text: str = getattr(statements, name)
        return text.replace(f'"{schema}".', "")

    with mine.connect() as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        connection.execute(f'SET search_path = "{schema}"'.encode())
        for migration in migrations():
            if not (migration.is_optional or migration.is_outside):
                connection.execute(migration.script.encode())
        batched = [TypedStatement(name, text_of(name), types_of(connection, text_of(name))) for name in BATCHED]
    return HEAD + definition(batched, {name: text_of(name) for name in FRAME})


def types_of(connection: Any, text: str) -> list[str]:
    """The types of the parameters of a statement. Every number is a bigint."""
    connection.execute(f"PREPARE asked AS {text}".encode())
    rows = connection.execute("SELECT parameter_types::text[] FROM pg_prepared_statements").fetchall()
    connection.execute("DEALLOCATE asked")
    return ["bigint" if kind == "integer" else kind for kind in rows[0][0]]


def main() -> None:
    """Write the file."""
    begin_run()
    try:
        with server() as url, place(url) as mine:
            TARGET.write_text(generate(mine), encoding="utf-8")
    finally:
        end_run()
    print(TARGET)


if __name__ == "__main__":
    main()
