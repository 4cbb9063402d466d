"""All statements are read when a store opens: the package may be upgraded under a running worker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.relational import statements as shared
from holdfast.storage.sqlite import connection as of_sqlite
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ManualClock

STORAGE = Path(shared.__file__).parents[1]


def names_of(package: str) -> set[str]:
    """The statements of a database and the shared ones, by the names of their files."""
    return {file.stem for folder in ("relational", package) for file in (STORAGE / folder / "sql").glob("*.sql")}


def remove_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no file of the package can be read."""

    def gone(package: str) -> Any:
        raise FileNotFoundError(package)

    monkeypatch.setattr(shared, "files", gone)


def test_a_store_that_is_open_needs_no_file_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "shop.db", clock=ManualClock())
        fresh = vars(store)["sql"] = shared.Statements(of_sqlite.PACKAGE)
        await store.open()
        remove_the_package(monkeypatch)
        assert {name for name in names_of("sqlite") if not getattr(fresh, name)} == set()
        await store.close()

    asyncio.run(scenario())


def test_a_store_that_is_open_for_reading_needs_no_file_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        first = SqliteStore(path, clock=ManualClock())
        await first.open()
        await first.close()
        store = SqliteStore(path, clock=ManualClock())
        fresh = vars(store)["sql"] = shared.Statements(of_sqlite.PACKAGE)
        store.open_for_reading()
        remove_the_package(monkeypatch)
        assert {name for name in names_of("sqlite") if not getattr(fresh, name)} == set()
        await store.close()

    asyncio.run(scenario())


def test_a_statement_of_the_database_replaces_the_shared_one_and_an_unknown_name_is_an_error() -> None:
    own = {file.stem for file in (STORAGE / "postgres" / "sql").glob("*.sql")}
    both = own & {file.stem for file in (STORAGE / "relational" / "sql").glob("*.sql")}
    assert both, "otherwise this test looks at nothing"
    statements = shared.Statements("holdfast.storage.postgres")
    for name in both:
        first_line = next(
            line
            for line in (STORAGE / "postgres" / "sql" / f"{name}.sql").read_text(encoding="utf-8").splitlines()
            if not line.lstrip().startswith("--")
        )
        assert getattr(statements, name).startswith(first_line.strip())
    with pytest.raises(AttributeError, match="no_such_statement"):
        _ = statements.no_such_statement
