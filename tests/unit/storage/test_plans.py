"""Statements that run often find their rows by an index, on tables without rows and without statistics."""

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.storage.sqlite.connection import migrations, statements

PLANS = {
    "next_claimable": "COVERING INDEX instances_claimable (workflow=? AND version=? AND claimable_at_ms>?)",
    "claim_instances": "INDEX instances_claimable (workflow=? AND version=? AND claimable_at_ms<?)",
    "find_instance": "INDEX instances_current (id=?)",
    "count_earlier": "INDEX instances_earlier (id=?)",
    "read_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "supersede_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "terminate_instance": "INTEGER PRIMARY KEY (rowid=?)",
    "read_payload": "(number=? AND reference=?)",
    "next_ready": "COVERING INDEX attempts_ready (queue=? AND available_at_ms>? AND available_at_ms<?)",
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
    "count_children": "(parent=?)",
    "parent_of": "INTEGER PRIMARY KEY (rowid=?)",
    "read_parent": "INTEGER PRIMARY KEY (rowid=?)",
    "supersede_child": "INDEX instances_current (id=?)",
    "scan_commits": "INTEGER PRIMARY KEY (rowid>?)",
    "delete_old_commits": "INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    "new_requests": "INDEX requests_new (row>?)",
    "new_reports": "INDEX activity_events_new (row>?)",
    "reports_of": "INDEX activity_events_of_offer (activity_exec_id=? AND state=?)",
    "open_reports": "COVERING INDEX activity_events_of_offer (activity_exec_id=? AND state=?)",
    "refused_sequences": "INDEX activity_events_of_offer (activity_exec_id=? AND state=?)",
    "has_new_report": "COVERING INDEX activity_events_of_offer (activity_exec_id=? AND state=?)",
    "current_offer": "INDEX offers_of_attempt (number=? AND execution=? AND activity=? AND dimension=? AND attempt=?)",
    "lock_offer": "PRIMARY KEY (exec_id=?)",
    "move_attempt": "(number=? AND execution=? AND activity=? AND dimension=? AND attempt=?)",
}

ALLOWED = re.compile(r"VIRTUAL TABLE|\(subquery|SCAN (?:holders|keys|page|found|new|waiting)$|CONSTANT ROW")
"""Lists that were handed in, what indexes have given already, and no table at all."""


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_finds_its_rows_by_an_index(tmp_path: Path, name: str) -> None:
    plan = plan_of(tmp_path, getattr(statements(), name))
    assert any(PLANS[name] in step for step in plan), plan
    assert not [step for step in plan if step.startswith("SCAN") and not ALLOWED.search(step)], plan


WAITING_ROWS = {
    "has_new_rows": ("COVERING INDEX requests_new", "COVERING INDEX activity_events_new"),
    "pending_starts": ("INDEX requests_new",),
    "stranded_offers": ("COVERING INDEX activity_events_waiting",),
}
"""Statements of each poll that read an index from end to end, which has only rows that are not handled."""


@pytest.mark.parametrize("name", WAITING_ROWS)
def test_a_poll_reads_no_handled_rows_of_clients(tmp_path: Path, name: str) -> None:
    plan = plan_of(tmp_path, getattr(statements(), name))
    scanned = [step for step in plan if step.startswith("SCAN") and not ALLOWED.search(step)]
    assert [step.partition(" USING ")[2] for step in scanned] == list(WAITING_ROWS[name])


def plan_of(tmp_path: Path, statement: str) -> list[str]:
    connection: Any = apsw.Connection(str(tmp_path / "empty.db"))
    try:
        for migration in migrations():
            connection.execute(migration.script)
        explained = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * bindings_of(statement))
        return [str(row[3]) for row in explained]
    finally:
        connection.close()


def bindings_of(statement: str) -> int:
    """How many values a statement wants: the highest numbered one, or as many as there are question marks."""
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return max(numbers) if numbers else statement.count("?")
