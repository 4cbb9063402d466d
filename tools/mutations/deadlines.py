"""Mutants of deadlines: who is asked, who is ended, when, and once."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

SCENARIOS: Final = "tests/scenarios/test_deadlines.py"
OVERDUE: Final = "tests/scenarios/test_overdue.py"

DEADLINES: Final = (
    in_python(
        "a deadline is acted upon before it comes",
        "C1",
        "storage/relational/apply/deadlines",
        "deadline.expires_at_ms > transaction.now_ms",
        "deadline.expires_at_ms > transaction.now_ms + 10_000",
    ),
    in_python(
        "the grace never begins",
        "A9",
        "storage/relational/apply/deadlines",
        "at_ms=applies_at_ms)\n            _begin_grace(transaction, found, deadline)",
        "at_ms=applies_at_ms)",
    ),
    in_python(
        "the grace counts from the deadline",
        "A9",
        "storage/relational/apply/deadlines",
        "transaction.now_ms + deadline.grace_ms",
        "deadline.at_ms + deadline.grace_ms",
    ),
    in_python(
        "the request of a deadline looks like a cancel",
        "A9",
        "storage/instance_endings",
        "by_deadline=True",
        "by_deadline=False",
    ),
    in_python(
        "what is blocked waits beyond its deadline",
        "A9",
        "core/deadlines",
        "_I.BLOCKED: _D.END",
        "_I.BLOCKED: _D.WAIT",
    ),
    in_python(
        "after the grace nobody ends it",
        "A9",
        "core/deadlines",
        "(grace_ms > 0 and not is_grace_over)",
        "grace_ms > 0",
    ),
    in_sql("a deadline is said anew", "C1", "set_deadline", "AND grace_ms IS NULL", ""),
    in_sql("what has ended is overdue", "C1", "expired_instances", "AND closed_at_ms IS NULL", ""),
    in_sql("nobody wakes for a deadline", "C1", "next_expiry", "FROM instances WHERE", "FROM instances WHERE 0 AND"),
    in_python(
        "overdue code ends as cancelled",
        "A9",
        "replay/run",
        "if self._is_overdue and error is not None",
        "if False and error is not None",
        SCENARIOS,
    ),
    in_python(
        "what overdue code stumbled over is forgotten",
        "A9",
        "replay/run",
        "exceeded.__cause__ = error",
        "pass",
        SCENARIOS,
    ),
    in_python(
        "the code's own deadline is not said by who claims it",
        "C1",
        "runtime/duties/claimer",
        "self._expiry.record_deadline(record)",
        "pass",
        OVERDUE,
    ),
    in_python(
        "an instance that was ended stays live",
        "A9",
        "runtime/duties/expiry",
        "if outcome.verdict is DeadlineVerdict.END",
        "if False",
        f"{OVERDUE}::test_whoever_waits_is_told_at_once_and_bodies_are_told_to_stop",
    ),
    in_python(
        "a child is created without its deadline",
        "A9",
        "storage/relational/apply/children",
        "if new.deadline is not None",
        "if False",
    ),
    in_python(
        "the children of an overdue parent live on",
        "A9",
        "storage/relational/apply/deadlines",
        "children = close_children(transaction, found.number, found.execution)",
        "children = ()",
    ),
)
