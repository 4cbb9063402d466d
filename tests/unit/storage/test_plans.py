"""Statements that run often find their rows by an index, on tables without rows and without statistics."""

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.storage.sqlite.connection import migrations, statements

PLANS = {
    "next_claimable": "COVERING INDEX instances_claimable (workflow=? AND claimable_at_ms>?)",
    "claim_instances": "INDEX instances_claimable (workflow=? AND claimable_at_ms<?)",
    "find_instance": "INDEX instances_current (id=?)",
    "count_earlier": "INDEX instances_earlier (id=?)",
    "read_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "supersede_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "terminate_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "read_payload": "(number=? AND reference=?)",
    "next_ready": "COVERING INDEX attempts_ready (queue=? AND available_at_ms>?)",
    "waiting_queues": "COVERING INDEX attempts_ready (queue=? AND available_at_ms<?)",
    "ready_attempts": "INDEX attempts_ready (queue=? AND available_at_ms<?)",
    "next_expiry": "COVERING INDEX attempts_expiring (expires_at_ms>?)",
    "expired_instances": "INDEX instances_expiring (expires_at_ms<?)",
    "read_deadline": "INTEGER PRIMARY KEY (rowid=?)",
    "set_deadline": "INTEGER PRIMARY KEY (rowid=?)",
    "start_grace": "INTEGER PRIMARY KEY (rowid=?)",
    "expired_attempts": "INDEX attempts_expiring (expires_at_ms<?)",
    "dead_owners": "COVERING INDEX instances_owned",
    "owned_attempt_keys": "INDEX attempts_held (owner=?)",
    "owned_instances": "INDEX instances_owned (owner=?)",
    "owned_attempts": "INDEX attempts_held (owner=?)",
    "owned_attempt": "(number=? AND execution=? AND activity=? AND dimension=? AND attempt=?)",
    "release_lost_instances": "INDEX instances_owned (owner=?)",
    "has_pending": "INDEX sqlite_autoindex_attempts_1 (number=?)",
    "find_child": "INDEX instances_steps (parent=? AND parent_execution=? AND parent_step=?)",
    "open_children": "INDEX instances_open_children (parent=? AND parent_execution=?)",
    "insert_closing": "INDEX instances_open_children (parent=? AND parent_execution=?)",
    "list_children": "INDEX instances_children (parent=? AND number<?)",
    "count_children": "INDEX instances_children (parent=?)",
    "parent_of": "INTEGER PRIMARY KEY (rowid=?)",
    "read_parent": "INTEGER PRIMARY KEY (rowid=?)",
    "supersede_child": "INDEX instances_current (id=?)",
    "scan_commits": "INTEGER PRIMARY KEY (rowid>?)",
    "delete_old_commits": "INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    "move_attempt": "(number=? AND execution=? AND activity=? AND dimension=? AND attempt=?)",
}

ALLOWED = re.compile(r"VIRTUAL TABLE|\(subquery|SCAN holders|CONSTANT ROW")
"""Lists that were handed in, what indexes have given already, and no table at all."""


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_finds_its_rows_by_an_index(tmp_path: Path, name: str) -> None:
    statement: str = getattr(statements(), name)
    connection: Any = apsw.Connection(str(tmp_path / "empty.db"))
    try:
        for migration in migrations():
            connection.execute(migration.script)
        explained = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * bindings_of(statement))
        plan = [str(row[3]) for row in explained]
    finally:
        connection.close()
    assert any(PLANS[name] in step for step in plan), plan
    assert not [step for step in plan if step.startswith("SCAN") and not ALLOWED.search(step)], plan


def bindings_of(statement: str) -> int:
    """How many values a statement wants: the highest numbered one, or as many as there are question marks."""
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return max(numbers) if numbers else statement.count("?")
