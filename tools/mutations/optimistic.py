"""Mutants of what many who write to PostgreSQL at once rely on: locks, their order, time, and rows seen late."""

from typing import Final

from tools.mutations.mutant import STORAGE, Mutant, in_python

AT_ONCE: Final = "tests/postgres/test_at_once.py"
STORE: Final = "tests/postgres/test_store.py"
LOCKS: Final = "tests/postgres/test_locks.py"
ENGINE: Final = "tests/postgres/test_engine.py"
GROUP: Final = "tests/postgres/test_group_function.py"
LOOP_WRITER: Final = "tests/postgres/test_loop_writer.py"
LOOKUP: Final = "tests/postgres/test_instance_lookup.py"
FUNCTION: Final = f"{STORAGE}/postgres/migrations/0012_changes.sql"


def in_postgres(name: str, rule: str, statement: str, old: str, new: str, *tests: str) -> Mutant:
    """In a statement of the PostgreSQL store alone."""
    return Mutant(name, rule, f"{STORAGE}/postgres/sql/{statement}.sql", old, new, tests)


def in_function(name: str, rule: str, old: str, new: str, test: str) -> Mutant:
    """In the group function. `test` is one that runs it: the one that compares its text would fail for any edit."""
    return Mutant(name, rule, FUNCTION, old, new, (f"{GROUP}::{test}",))


MANY_AT_ONCE: Final = (
    in_postgres(
        "two claimers get one instance",
        "G1",
        "claim_instances",
        "losses < 2\n    FOR NO KEY UPDATE SKIP LOCKED",
        "losses < 2",
        AT_ONCE,
    ),
    in_postgres(
        "two claimers get one instance where the first ones are taken",
        "G1",
        "claim_instances",
        "LIMIT missing.share\n        FOR NO KEY UPDATE SKIP LOCKED",
        "LIMIT missing.share",
        LOCKS,
    ),
    in_postgres("a worker is lost in the middle of its group", "W6", "active_worker", "FOR KEY SHARE", "", AT_ONCE),
    in_postgres("the end of a lease waits for no group", "W6", "lock_workers", "FOR UPDATE", "", AT_ONCE),
    in_postgres(
        "a message that became visible late is overlooked", "G10", "read_inbox_of_owner", ">= ?3", "> ?3", STORE
    ),
    in_python(
        "the loss of a worker has it before it has its instances",
        "W6",
        "storage/postgres/writer",
        "named.ids or named.ending or named.lost",
        "named.ids or named.ending",
        LOCKS,
    ),
    in_python(
        "only the worker that is lost is locked first",
        "W6",
        "storage/postgres/writer",
        "sorted(named.actors.union(named.lost))",
        "sorted(named.lost)",
        LOCKS,
    ),
    in_python(
        "the mark of the clock is not looked at",
        "W9",
        "storage/postgres/transaction",
        "max(self._committed_ms, now_ms, mark_ms, said_ms)",
        "max(self._committed_ms, now_ms, said_ms)",
        STORE,
    ),
    in_python(
        "an optimistic group wakes no process",
        "G5",
        "storage/postgres/writer",
        "        self._note_wakeups(transaction, [list(reply.target_rows())])",
        "",
        ENGINE,
    ),
    in_function(
        "a statement of a call may change too few rows",
        "L13",
        "IF _kinds[_place] > 0 AND _met <> _n THEN",
        "IF false THEN",
        "test_L13_one_stale_member_of_a_set_is_rejected_and_the_others_are_applied",
    ),
    in_function(
        "a call does not look at the id of its commit",
        "L13",
        "IF _met <> 1 THEN\n            RAISE EXCEPTION 'a commit of this id",
        "IF false THEN\n            RAISE EXCEPTION 'a commit of this id",
        "test_L13_the_same_commit_twice_is_refused_also_in_one_call",
    ),
    in_function(
        "a call runs in any isolation",
        "G5",
        "IF current_setting('transaction_isolation') <> 'read committed'",
        "IF false",
        "test_G5_a_call_refuses_the_defaults_of_the_role_and_then_says_begin",
    ),
    in_function(
        "a relaxed call waits for the disk",
        "G11",
        "IF _relaxed THEN",
        "IF false THEN",
        "test_a_relaxed_store_does_not_wait_for_the_disk",
    ),
    in_python(
        "statements of one instance change places",
        "G11",
        "storage/postgres/optimistic/group_call",
        "            if reached.get(number, 0) > place:\n                unordered.add(number)\n",
        "",
        f"{GROUP}::test_statements_of_one_instance_keep_their_order_whatever_it_is",
    ),
    in_python(
        "a group of any size is one message",
        "G11",
        "storage/postgres/optimistic/group_call",
        "            if length > MOST_CHARACTERS:",
        "            if False:",
        f"{GROUP}::test_G11_a_group_that_is_too_long_for_one_call_is_written_statement_by_statement",
    ),
    in_python(
        "a text with NUL is sent",
        "G3",
        "storage/postgres/optimistic/group_call",
        'if "\\0" in given or "\\0" in begin:',
        "if False:",
        f"{GROUP}::test_a_text_that_cannot_be_sent_is_refused_before_it_is_sent",
    ),
    in_python(
        "a call whose connection was lost is not settled",
        "L13",
        "storage/postgres/writer",
        "if self._settle(call.commit_id, call.part):",
        "if False:",
        LOOP_WRITER,
    ),
    in_python(
        "a group is sent in several messages",
        "W7",
        "storage/postgres/loop_query",
        "pgconn.send_query(statement)",
        "pgconn.send_query_params(statement, [])",
        f"{LOOP_WRITER}::test_W7_a_process_that_stops_while_it_sends_a_group_holds_no_row",
    ),
    in_python(
        "the event loop uses the connection of a thread that goes on",
        "L13",
        "storage/postgres/loop_writer",
        "self._query.is_possible and (self._on_it is None or self._on_it.done())",
        "self._query.is_possible",
        LOOP_WRITER,
    ),
    in_python(
        "a look-up gets what an earlier one found",
        "G3",
        "storage/postgres/instance_lookup",
        "                self._next = _Batch()\n",
        "",
        LOOKUP,
    ),
)
