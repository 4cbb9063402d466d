"""Mutants of children: created with a turn, answering once, and what the end of a parent means for them."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

CHILDREN_TESTS: Final = "tests/scenarios/test_children.py"
CANCELLED: Final = "tests/scenarios/test_child_cancellation.py"
CLOSED: Final = "tests/scenarios/test_parent_close.py"
VERIFIED: Final = "tests/scenarios/test_verify_families.py"

CHILDREN: Final = (
    in_python(
        "a child that has ended tells nobody",
        "G5",
        "storage/relational/apply/children",
        "answer_parent(transaction, number, close.state, close.outcome)",
        "pass",
    ),
    in_python(
        "a child that was ended from outside tells nobody",
        "G5",
        "storage/relational/apply/instance_endings",
        "answer_parent(transaction, number, state, outcome)",
        "pass",
    ),
    in_python(
        "an old execution's child answers the new one",
        "G4",
        "storage/relational/apply/instance_endings",
        "addressed_to=addressed_to,",
        "addressed_to=execution,",
    ),
    in_python(
        "the answer of a child wakes nobody",
        "G5",
        "storage/relational/apply/instance_endings",
        "put_in_inbox(transaction, parent, execution, answer)",
        "put_in_inbox(transaction, parent, execution, answer, wakes=False)",
    ),
    in_python(
        "a large result of a child stays with it",
        "G11",
        "storage/relational/apply/instance_endings",
        "transaction.execute(transaction.sql.insert_payload, payload.reference, parent, *data)",
        "pass",
    ),
    in_python(
        "a refused child is told to nobody",
        "G3",
        "storage/relational/apply/children",
        "put_in_inbox(transaction, parent, execution, ChildRefused(time_ms=now_ms, child=new.child, reason=reason))",
        "pass",
    ),
    in_python(
        "a chosen id is never confirmed",
        "G3",
        "storage/relational/apply/children",
        "    if new.named:\n        put_in_inbox",
        "    if not new.named:\n        put_in_inbox",
    ),
    in_sql("whoever has the id makes room for a child", "G3", "supersede_child", "closed_at_ms IS NOT NULL", "1"),
    in_python(
        "the end of a parent is not noted",
        "A9",
        "storage/relational/apply/children",
        "ParentEnd.BY_ITSELF)",
        "'nothing')",
    ),
    in_python(
        "the end of a parent goes through everything at once",
        "C1",
        "storage/instance_endings",
        "MOST_CHILDREN_PER_COMMIT: Final = 500",
        "MOST_CHILDREN_PER_COMMIT: Final = 5_000_000",
    ),
    in_python(
        "what is left of a large family is forgotten",
        "C1",
        "storage/relational/apply/children",
        "            if done < limit:\n",
        "            if done:\n",
    ),
    in_python(
        "a termination stops at the children",
        "A9",
        "storage/relational/apply/children",
        "                    executions.append((child.number, child.execution))\n",
        "",
    ),
    in_sql("abandoned children end, too", "A9", "open_children", "AND parent_close <> 'abandon'", ""),
    in_sql("who cleans up outlives a terminated parent", "A9", "open_children", "(?3 = 'terminated' AND", "(0 AND"),
    in_python(
        "a policy of cancel terminates",
        "A9",
        "storage/relational/apply/children",
        "is ParentClose.TERMINATE:\n",
        "is not ParentClose.ABANDON:\n",
    ),
    in_python(
        "a cancelled parent without code terminates its children",
        "A9",
        "core/children",
        "if policy is ParentClose.TERMINATE and ended is ParentEnd.CANCELLED:",
        "if policy is None:",
        CLOSED,
    ),
    in_python(
        "nobody goes on with a large family",
        "C1",
        "runtime/duties/maintenance",
        "await self._store.open_closings(PARENTS)",
        "[]",
        CLOSED,
    ),
    in_python(
        "who stops waiting does not tell the child",
        "A9",
        "replay/children",
        "            if self.is_attached:\n",
        "            if not self.is_attached:\n",
        CANCELLED,
    ),
    in_python(
        "the end of a continued child is told to nobody",
        "G4",
        "runtime/turns/turn_builder",
        "        depth=live.run.depth,\n",
        "",
        CHILDREN_TESTS,
    ),
    in_python(
        "children nest without end",
        "G11",
        "core/run",
        "if depth > MOST_PARENTS:",
        "if depth > 10 * MOST_PARENTS:",
        CHILDREN_TESTS,
    ),
    in_python(
        "another child than recorded is no difference",
        "G12",
        "core/history",
        'identity = ("child", "name", "named")',
        'identity = ("child", "named")',
        CHILDREN_TESTS,
    ),
    in_python(
        "a child that was terminated goes on in this process",
        "A9",
        "runtime/committer",
        "for closed in outcome.ended:",
        "for closed in ():",
        CLOSED,
    ),
    in_python(
        "an audit does not ask whether a parent was told",
        "G5",
        "audit/children",
        "if is_closed and is_active:",
        "if is_closed and not is_active and child is None:",
        VERIFIED,
    ),
    in_python(
        "an audit does not see who was left behind",
        "A9",
        "audit/children",
        "if not is_active and not is_closing and _is_left_over(child):",
        "if is_closing and _is_left_over(child):",
        VERIFIED,
    ),
)
