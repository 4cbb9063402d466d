"""Mutants of what many who write to PostgreSQL at once rely on: locks, their order, time, and rows seen late."""

from typing import Final

from tools.mutations.mutant import STORAGE, Mutant, in_python

AT_ONCE: Final = "tests/postgres/test_at_once.py"
STORE: Final = "tests/postgres/test_store.py"
LOCKS: Final = "tests/postgres/test_locks.py"
ENGINE: Final = "tests/postgres/test_engine.py"


def in_postgres(name: str, rule: str, statement: str, old: str, new: str, *tests: str) -> Mutant:
    """In a statement of the PostgreSQL store alone."""
    return Mutant(name, rule, f"{STORAGE}/postgres/sql/{statement}.sql", old, new, tests)


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
        "others are told nothing",
        "G5",
        "storage/postgres/writer",
        "if notifies else None",
        "if notifies is None else None",
        ENGINE,
    ),
)
