"""Mutants of what surrounds the PostgreSQL store: addresses, connections, what errors mean, and wake-ups."""

from typing import Final

from tools.mutations.mutant import Mutant, in_python

ADDRESS: Final = "tests/postgres/test_address.py"
CONNECTING: Final = "tests/postgres/test_connecting.py"
FAULTS: Final = "tests/postgres/test_faults.py"
WAKEUP: Final = "tests/contract/test_postgres_wakeup.py"
LISTENING: Final = "tests/postgres/test_listening.py"
NOTHING_LOST: Final = "tests/postgres/test_nothing_is_lost.py"

CONNECTIONS: Final[tuple[Mutant, ...]] = (
    in_python(
        "the password of a store is shown",
        "C1",
        "storage/postgres/address",
        "if name not in SECRETS}",
        "}",
        f"{ADDRESS}::test_a_secret_is_used_and_never_shown",
    ),
    in_python(
        "a standby is taken for the primary",
        "C1",
        "storage/postgres/connection",
        "if is_standby or is_read_only:",
        "if is_read_only and not is_standby:",
        f"{CONNECTING}::test_a_safe_server_is_passed_over_in_silence_and_a_standby_refused",
    ),
    in_python(
        "a server that does not wait for its disk is taken without a word",
        "C1",
        "storage/postgres/connection",
        'if value == "off" and',
        'if value == "none" and',
        f"{CONNECTING}::test_settings_that_lose_commits_are_named_once",
    ),
    in_python(
        "a transaction whose client vanished keeps its locks",
        "W6",
        "storage/postgres/connection",
        "fetch(flush=False)",
        "fetch(flush=flush)",
        f"{CONNECTING}::test_a_transaction_whose_client_vanished_after_a_round_trip_is_ended",
    ),
    in_python(
        "an error that libpq makes without the server is one member's fault",
        "L13",
        "storage/postgres/connection",
        "if type(error) is psycopg.DatabaseError:",
        "if False:",
        f"{FAULTS}::test_our_own_errors",
    ),
    in_python(
        "a deadlock is one member's fault",
        "C1",
        "storage/postgres/connection",
        '"40": ErrorClass.TRY_AGAIN',
        '"40": ErrorClass.MEMBER',
        f"{FAULTS}::test_a_deadlock_is_tried_again",
    ),
    in_python(
        "a full disk is one member's fault",
        "C1",
        "storage/postgres/connection",
        '"53100": ErrorClass.BROKEN',
        '"53100": ErrorClass.MEMBER',
        f"{FAULTS}::test_errors_of_statements",
    ),
    in_python(
        "notifications that were sent before the listener connected are not looked for",
        "G5",
        "storage/postgres/notifier",
        "heard.add(EVERYTHING)\n        self._inserted(None)",
        "self._inserted(None)",
        f"{LISTENING}::test_a_lost_connection_is_made_again_and_wakes_once",
    ),
    in_python(
        "reports of executors wake all duties but the one that handles them",
        "C12",
        "storage/postgres/notifier",
        "if table in (REQUESTS, ACTIVITY_EVENTS):",
        "if table == REQUESTS:",
        f"{WAKEUP}::test_C12_the_names_of_activities_are_notified",
    ),
    in_python(
        "a store without triggers is not polled for rows of clients",
        "C12",
        "storage/postgres/notifier",
        "if is_idle and self._has_new_rows(connection):",
        "if False:",
        f"{WAKEUP}::test_C12_without_the_triggers_a_worker_polls",
    ),
    in_python(
        "a commit whose answer was lost is taken as made",
        "C1",
        "storage/postgres/writer",
        "if not self._settle(commit_id, part):",
        "if self._settle(commit_id, part) is None:",
        f"{NOTHING_LOST}::test_connections_cut_at_the_commit",
    ),
    in_python(
        "a commit whose answer was lost is made again",
        "C1",
        "storage/postgres/writer",
        "if not self._settle(commit_id, part):",
        "if self._settle(commit_id, part) is not None:",
        f"{NOTHING_LOST}::test_connections_cut_at_the_commit",
    ),
)
