"""Mutants of the audit and of what people see of an instance: orphans, gaps, bounds, damaged rows, live workers."""

from typing import Final

from tools.mutations.mutant import in_python

DAMAGE: Final = "tests/scenarios/test_update_damage.py"
LARGE: Final = "tests/scenarios/test_verify_large.py"
DAMAGED: Final = "tests/unit/cli/test_damaged.py"
OBSTACLES: Final = "tests/workers/test_obstacles.py"
STARTS: Final = "tests/scenarios/test_flow_starts.py"

AUDITS: Final = (
    in_python(
        "rows of no instance are passed over",
        "G1",
        "audit/scans",
        "self._orphaned(self._table, orphan, count)",
        "pass",
        DAMAGE,
    ),
    in_python(
        "executions of which nothing is there are passed over",
        "G4",
        "audit/instances",
        "yield from _check_gap(number if is_deleted else expected, number)",
        "yield from ()",
        LARGE,
    ),
    in_python(
        "a report keeps every problem",
        "G11",
        "audit/auditor",
        "if len(self._problems) >= MOST_PROBLEMS:",
        "if not rule:",
        LARGE,
    ),
    in_python(
        "a column that holds another type is shown as it is",
        "G11",
        "client/views/report",
        "changes[field.name] = _empty_value(field.type)",
        "continue",
        DAMAGED,
    ),
    in_python(
        "a worker is live after its lease",
        "W1",
        "client/views/obstacles",
        "row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms",
        "row.state == WorkerState.ACTIVE",
        OBSTACLES,
    ),
    in_python(
        "a flow that was not begun has no key",
        "K1",
        "storage/relational/apply/instances",
        "first.key if first else start.key",
        "first.key if first else None",
        STARTS,
    ),
)
