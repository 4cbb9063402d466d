"""Writes the statements of the PostgreSQL store as they run, in one file, so that a change of them shows in a diff.

``python -m tools.generate_statements`` needs no server. A test compares the file. Column lists of reads stay names, so
that a new column changes nothing here.
"""

from pathlib import Path
from typing import Final

from holdfast.storage.postgres.transaction import statements_of
from holdfast.storage.records import COLUMNS
from holdfast.storage.relational.raw_tables import RAW_COLUMNS

TARGET: Final = Path(__file__).parents[1] / "tests" / "postgres" / "statements.sql"
SCHEMA: Final = "shop"
HEAD: Final = "-- Written by tools/generate_statements.py: the statements of the PostgreSQL store in the schema shop.\n"


def generate() -> str:
    """The text of the file: the statements by their names."""
    statements: dict[str, str] = vars(statements_of(SCHEMA))
    return HEAD + "".join(f"\n-- {name}\n{_with_names(statements[name])};\n" for name in sorted(statements))


def _with_names(text: str) -> str:
    """A read with the names of column lists in place of the lists, the longest lists first."""
    if text.startswith("INSERT"):
        return text
    lists = {name: ", ".join(columns) for name, columns in {**COLUMNS, **RAW_COLUMNS}.items()}
    for name in sorted(lists, key=lambda name: -len(lists[name])):
        text = text.replace(lists[name], f"{{{name}}}")
    return text


def main() -> None:
    """Write the file."""
    TARGET.write_text(generate(), encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
