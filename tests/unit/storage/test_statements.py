"""All statements are read when a store opens: the package may be upgraded under a running worker."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.storage.records import ATTEMPT_COLUMNS, COLUMNS, INSTANCE_COLUMNS
from holdfast.storage.relational import statements as shared
from holdfast.storage.relational.raw_tables import RAW_COLUMNS
from holdfast.storage.relational.rows import attempt_of, instance_of
from holdfast.storage.sqlite import connection as of_sqlite
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ManualClock

STORAGE = Path(shared.__file__).parents[1]
PARTS = {name: ", ".join(columns) for name, columns in COLUMNS.items()}


def names_of(package: str) -> set[str]:
    """The statements of a database and the shared ones, by the names of their files."""
    return {file.stem for folder in ("relational", package) for file in (STORAGE / folder / "sql").glob("*.sql")}


def remove_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no file of the package can be read."""

    def gone(package: str, folder: str) -> Any:
        raise FileNotFoundError(f"{package}/{folder}")

    monkeypatch.setattr(shared, "files_of", gone)


def test_a_store_that_is_open_needs_no_file_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        of_sqlite.statements.cache_clear()
        path = tmp_path / "shop.db"
        store = SqliteStore(path, clock=ManualClock())
        await store.open()
        remove_the_package(monkeypatch)
        assert {name for name in names_of("sqlite") if not getattr(store.sql, name)} == set()
        await store.close()
        reader = SqliteStore(path, clock=ManualClock())
        reader.open_for_reading()
        assert await reader.list_instances(before=2**62, limit=1) == []
        await reader.close()

    asyncio.run(scenario())


def test_the_files_of_a_package_in_an_archive_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
        archive.writestr("zipped/sql/one.sql", "SELECT 'é'")
        archive.writestr("zipped/sql/notes.txt", "no statement")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shop.zip"), *sys.path])
    assert shared.files_of("zipped", "sql") == [("one.sql", "SELECT 'é'")]


def test_a_statement_of_the_database_replaces_the_shared_one_and_an_unknown_name_is_an_error() -> None:
    own = {file.stem for file in (STORAGE / "postgres" / "sql").glob("*.sql")}
    both = own & {file.stem for file in (STORAGE / "relational" / "sql").glob("*.sql")}
    assert both, "otherwise this test looks at nothing"
    statements = shared.Statements("holdfast.storage.postgres", raw_columns=RAW_COLUMNS, claim_keys="{0}")
    for name in both:
        last_line = (STORAGE / "postgres" / "sql" / f"{name}.sql").read_text(encoding="utf-8").splitlines()[-1]
        assert getattr(statements, name).endswith(last_line.strip().format_map(PARTS))
    with pytest.raises(AttributeError, match="no_such_statement"):
        _ = statements.no_such_statement


@pytest.mark.parametrize("package", ["holdfast.storage.postgres", of_sqlite.PACKAGE])
def test_every_column_list_is_used_and_none_is_left_unexpanded(package: str) -> None:
    statements = shared.Statements(package, raw_columns=RAW_COLUMNS, claim_keys="{0}")
    texts = [getattr(statements, name) for name in names_of(package.rpartition(".")[2])]
    assert not [text for text in texts if "{" in text]
    for columns in {**COLUMNS, **RAW_COLUMNS}.values():
        assert any(", ".join(columns) in text for text in texts)


def test_a_row_is_read_by_the_names_of_its_columns() -> None:
    """The value of each column here is its name, except for the state, which has to be one."""
    instance = instance_of(tuple(InstanceState.RUNNING if name == "state" else name for name in INSTANCE_COLUMNS))
    assert {name: getattr(instance, name) for name in INSTANCE_COLUMNS} == {
        **{name: name for name in INSTANCE_COLUMNS},
        "state": InstanceState.RUNNING,
    }
    assert (instance.custom_status, instance.parent_id) == (None, None)
    attempt = attempt_of(tuple(AttemptState.READY if name == "state" else name for name in ATTEMPT_COLUMNS))
    read = {name: getattr(attempt.key, name, None) or getattr(attempt, name, None) for name in ATTEMPT_COLUMNS}
    assert read == {**{name: name for name in ATTEMPT_COLUMNS}, "state": AttemptState.READY}
    assert (attempt.instance_id, attempt.workflow) == ("", "")
