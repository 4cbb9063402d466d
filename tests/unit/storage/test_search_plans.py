"""Searches on SQLite follow the one index that their filter has, on tables without rows or statistics (F8)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from holdfast.core.filters import at, parse
from holdfast.storage.relational.search import WALK, Search
from holdfast.storage.search import OrderField, PageOrder, Position
from holdfast.storage.sqlite.connection import migrations
from holdfast.storage.sqlite.search import SqliteDialect

if TYPE_CHECKING:
    from pathlib import Path

ORDERED = {
    "state = FAILED and created > now - 1h": "COVERING INDEX instances_by_state (state=? AND created_at_ms>",
    "state = FAILED and execution = 1 and duration > 1h": "INDEX instances_by_state (state=?",
    'workflow = "w" and not state = FAILED and created < now': "INDEX instances_by_workflow (workflow=? AND created",
    'a.customer = "acme"': "COVERING INDEX attributes_by_value (name=? AND value=?",
    'a.customer = "acme" and execution = 1 and created > now - 1h': (
        "COVERING INDEX attributes_by_value (name=? AND value=? AND created_at_ms>? AND created_at_ms<?)"
    ),
    "created > now - 1h and not state = FAILED": "INDEX instances_by_workflow (workflow=? AND created_at_ms>?",
    "state = COMPLETED": "INDEX instances_by_workflow (workflow=?",
    'error = "Declined" and created > now - 1h': "INDEX instances_by_state (state=? AND created_at_ms>",
}
SETS = {
    'id = "a"': "INDEX instances_current (id=?)",
    'id starts with "a"': "INDEX instances_earlier (id>? AND id<?)",
    'parent = "a"': "SEARCH child USING COVERING INDEX instances_",
    'root = "a"': "SEARCH child USING COVERING INDEX instances_",
    "a.n > 5": "INDEX attributes_by_value (name=? AND value>? AND value<?)",
    "state = RUNNING": "COVERING INDEX instances_owned",
    "closed > now - 1h": "INDEX instances_by_closed (closed_at_ms>? AND closed_at_ms<?)",
}


ALLOWED = {"page", "k", "above", "family", "line", "found", "b0", "b1", "every", "i", "(subquery-2)", "CONSTANT"}
"""Rows that indexes have given already; `i` is the index of unowned instances, in the order of the list."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path: Path = tmp_path_factory.mktemp("plans") / "empty.db"
    opened: Any = apsw.Connection(str(path))
    for migration in migrations():
        opened.execute(migration.script)
    yield opened
    opened.close()


def plan(connection: Any, text: str | None, order: PageOrder, after: Position | None, what: str) -> list[str]:
    found = None if text is None else at(parse(text), 10**12)
    search = Search(SqliteDialect(), found, order, after)
    lead = search.leads[0] if search.leads else search.walk(["flow"])[0]
    statement, *values = search.page(lead, 50) if what == "page" else search.count(lead, 50)
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(values))]


@pytest.mark.parametrize("what", ["page", "count"])
@pytest.mark.parametrize("is_ascending", [False, True])
@pytest.mark.parametrize("after", [None, Position(key=5, number=7)])
@pytest.mark.parametrize("text", ORDERED)
def test_F8_a_page_is_a_range_of_one_index(
    connection: Any, text: str, after: Position | None, is_ascending: bool, what: str
) -> None:
    steps = plan(connection, text, PageOrder(is_ascending=is_ascending), after, what)
    assert any(ORDERED[text] in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN") and step.split()[1] not in ("page", "found", "k")], (
        steps
    )
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    assert len(sorts) <= (what == "page"), f"only the rows of a page are sorted: {steps}"


@pytest.mark.parametrize("text", SETS)
def test_F8_a_set_is_found_by_its_index_and_looked_up_row_by_row(connection: Any, text: str) -> None:
    steps = plan(connection, text, PageOrder(), None, "page")
    assert any(SETS[text] in step for step in steps), steps
    assert any("SEARCH i USING INTEGER PRIMARY KEY" in step for step in steps), steps
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN")}
    assert scanned <= ALLOWED, steps


def test_F8_a_list_without_a_filter_and_one_by_its_ends_read_their_index(connection: Any) -> None:
    steps = plan(connection, None, PageOrder(), None, "page")
    assert any("SEARCH i USING COVERING INDEX instances_by_workflow (workflow=?)" in step for step in steps), steps
    assert Search(SqliteDialect(), None, PageOrder(), None).choose([]) is WALK
    search = Search(SqliteDialect(), None, PageOrder(field=OrderField.CLOSED), None)
    statement, *values = search.page(search.choose([]), 50)
    steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(values))]
    assert any("instances_by_closed" in step for step in steps), steps


def test_F8_unowned_running_instances_are_read_in_order(connection: Any) -> None:
    steps = plan(connection, "state = RUNNING", PageOrder(), None, "page")
    assert any("INDEX instances_unowned" in step for step in steps), steps


def test_F8_the_lists_of_workflows_are_merged_before_other_tests(connection: Any) -> None:
    """A workflow without a match is not read to its end: its rows are only merged as far as the page needs."""
    search = Search(SqliteDialect(), parse("execution = 2"), PageOrder(), None)
    [lead] = search.walk(["a", "b", "c"])
    for statement, *values in (search.page(lead, 50), search.count(lead, 50)):
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(values))]
        assert sum("MERGE (UNION ALL)" in step for step in steps) == 2, steps
        assert sum("COVERING INDEX instances_by_workflow (workflow=?)" in step for step in steps) == 3, steps
        assert "TEMP B-TREE" not in "".join(steps[:-1]), steps


def test_F8_many_workflows_are_read_a_hundred_at_a_time() -> None:
    search = Search(SqliteDialect(), None, PageOrder(), None)
    assert [len(lead.branches) for lead in search.walk([f"w{number}" for number in range(250)])] == [100, 100, 50]
    assert search.walk([]) == []


@pytest.mark.parametrize(
    "text", ["a.n = 1 and a.m = 2", 'a.n = 1 and not a.m starts with "x"', "a.n = 1 or a.m is null"]
)
def test_F8_other_tests_of_attributes_look_up_one_instance(connection: Any, text: str) -> None:
    steps = plan(connection, text, PageOrder(), None, "page")
    looked_up = [step for step in steps if step.startswith("SEARCH t ")]
    assert looked_up, steps
    assert all("PRIMARY KEY (number=? AND name=?)" in step for step in looked_up), steps
