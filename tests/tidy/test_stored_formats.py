"""Names that are stored, or that other programs use, are those of the checked-in list.

A change of the list is a decision: see `tools.stored_formats`, which also writes the list.
"""

import json
from typing import Any

import pytest
from tests.postgres.server import Place
from tools.stored_formats import TARGET, names, postgres_tables, sqlite_tables

LISTED: dict[str, Any] = json.loads(TARGET.read_text("utf-8"))
WHY = "a name that is stored or public has changed; see tools/stored_formats.py"


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    return names()


@pytest.mark.parametrize("what", [what for what in LISTED if what != "tables"])
def test_names_are_those_of_the_list(what: str, current: dict[str, Any]) -> None:
    assert current[what] == LISTED[what], WHY


def test_the_list_has_every_group(current: dict[str, Any]) -> None:
    assert [*current, "tables"] == list(LISTED)


def test_the_tables_of_sqlite_are_those_of_the_list() -> None:
    assert sqlite_tables() == LISTED["tables"]["sqlite"], WHY


def test_the_tables_of_postgresql_are_those_of_the_list(postgres: Place) -> None:
    with postgres.connect() as connection:
        assert postgres_tables(postgres.url, postgres.schema, connection) == LISTED["tables"]["postgres"], WHY


def test_both_stores_have_the_same_tables() -> None:
    tables = LISTED["tables"]
    assert tables["sqlite"].keys() == tables["postgres"].keys()
