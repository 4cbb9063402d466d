"""Writes the migration that makes the function of `storage.postgres.optimistic.batch_function`. Needs a PostgreSQL.

``python -m tools.generate_batch`` starts one of its own. The server reports the type of every value, because the schema
has them already; a test compares what is checked in with what would be written.
"""

from pathlib import Path
from typing import Final

from tests.postgres.places import begin_run, end_run
from tests.postgres.server import Place, place, server

from holdfast.storage.postgres.optimistic.batch_function import BATCHED, definition
from holdfast.storage.postgres.schema import make_tables
from holdfast.storage.postgres.transaction import statements_of

TARGET: Final = Path("src/holdfast/storage/postgres/migrations/0006_changes.sql")
HEAD: Final = """-- Written by tools/generate_batch.py from the statements of the store, see `batching.py`.
-- Makes many changes in one call, and fails if one of them does not meet the row it is for.
-- oldest: 1
-- optional

"""


def generate(mine: Place) -> str:
    """The migration, by the word of a server; the schema is only for this."""
    schema = mine.schema
    statements = statements_of(schema)
    with mine.connect() as connection:
        make_tables(connection, schema)
        bodies: list[tuple[str, list[str]]] = []
        for name in BATCHED:
            text: str = getattr(statements, name)
            connection.execute(f"PREPARE asked AS {text}".encode())
            rows = connection.execute("SELECT parameter_types::text[] FROM pg_prepared_statements").fetchall()
            connection.execute("DEALLOCATE asked")
            types = ["bigint" if kind == "integer" else kind for kind in rows[0][0]]  # every number is one
            bodies.append((text.replace(f'"{schema}".', ""), types))
    return HEAD + definition(bodies)


def main() -> None:
    """Write it."""
    begin_run()
    try:
        with server() as url, place(url) as mine:
            TARGET.write_text(generate(mine), encoding="utf-8")
    finally:
        end_run()
    print(TARGET)


if __name__ == "__main__":
    main()
