"""Mutants of what protects the files of a SQLite store and those beside it, and of how their loss ends an engine."""

from typing import Final

from tools.mutations.mutant import Mutant, in_python

FILES: Final = "tests/unit/storage/sqlite/test_files.py"
SCENARIOS: Final = "tests/scenarios/test_store_files.py"
COMMITTER: Final = "tests/unit/runtime/test_committer.py"
LOCK: Final = "tests/unit/storage/sqlite/test_write_lock.py"
WAKE: Final = "tests/unit/storage/sqlite/test_notifier.py"
STATEMENTS: Final = "tests/unit/storage/test_statements.py"
WRITER: Final = "tests/unit/storage/sqlite/test_writer.py"
TELLING: Final = "tests/unit/runtime/test_signals.py"

FOREIGN: Final = "tests/unit/storage/sqlite/test_foreign_writes.py"

STORE_FILES: Final[tuple[Mutant, ...]] = (
    in_python(
        "another program blocks the event loop",
        "C12",
        "storage/sqlite/writer",
        "foreign.may_wait = False",
        "foreign.may_wait = True",
        f"{FOREIGN}::test_a_group_waits_on_the_writer_s_thread_while_the_loop_runs",
    ),
    in_python(
        "the rest of a halved group is handed over, and taken as written before",
        "L13",
        "storage/sqlite/writer",
        "self._foreign.may_wait = True  # a part may be on disk",
        "pass  # a part may be on disk",
        f"{FOREIGN}::test_L13_a_part_of_a_halved_group_waits_where_it_is",
    ),
    in_python(
        "every commit of the own writer is a reason to look for rows of clients",
        "C12",
        "storage/sqlite/foreign_writes",
        "is_same = version is not None and version == self._version",
        "is_same = False",
        f"{FOREIGN}::test_the_probe_looks_only_after_commits_of_others_and_survives_trouble",
    ),
    in_python(
        "a group is acknowledged although its files are gone",
        "G11",
        "storage/sqlite/writer",
        "outcomes = self._write_group(commit_id, members)\n            self._check_files()",
        "outcomes = self._write_group(commit_id, members)",
        f"{FILES}::test_files_that_are_removed_during_a_commit_are_noticed_before_it_is_acknowledged",
    ),
    in_python(
        "a group is written with the index of a WAL that others have replaced",
        "G11",
        "storage/sqlite/writer",
        "self._check_files()\n            if self._cursor.execute(self._sql.find_commit",
        "if self._cursor.execute(self._sql.find_commit",
        f"{FILES}::test_nothing_is_written_to_files_that_were_replaced_before",
    ),
    in_python(
        "a heartbeat is answered although its files are gone",
        "W6",
        "storage/sqlite/writer",
        "with self._lock.held():\n            self._check_files()\n            try:\n                reply",
        "with self._lock.held():\n            try:\n                reply",
        f"{FILES}::test_a_worker_that_only_beats_writes_nothing_to_files_that_are_gone",
    ),
    in_python(
        "a lost store is checkpointed by SQLite when it closes",
        "G11",
        "storage/sqlite/writer",
        "self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)",
        "self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)",
        FILES,
    ),
    in_python(
        "the WAL is not guarded",
        "G11",
        "storage/sqlite/files",
        "self.is_held = _lock(self._database, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)",
        "self.is_held = _lock(self._database, fcntl.F_UNLCK, SHARED_FIRST, SHARED_SIZE)",
        f"{FILES}::test_a_second_library_in_the_process_does_not_delete_the_wal",
    ),
    in_python(
        "the guard is never released",
        "G11",
        "storage/sqlite/files",
        "guard.release()",
        "guard.users = 0",
        f"{FILES}::test_a_clean_close_leaves_no_wal_and_no_descriptor",
    ),
    in_python(
        "a WAL without a name is written over a database that was changed",
        "G11",
        "storage/sqlite/files",
        "and _condition(found) == self._condition",
        "",
        FILES,
    ),
    in_python(
        "a WAL without a name is written beside another WAL",
        "G11",
        "storage/sqlite/files",
        "return size == 0 and self._guard.is_alone()",
        "return size >= 0",
        FILES,
    ),
    in_python(
        "a WAL without a name is given up",
        "G11",
        "storage/sqlite/files",
        "and self._has_no_other_wal() and save()",
        "and not save",
        f"{FILES}::test_what_was_acknowledged_before_the_wal_was_removed_is_saved",
    ),
    in_python(
        "a second SQLite library is not noticed",
        "G11",
        "storage/sqlite/files",
        'if event != "sqlite3.connect"',
        'if event != "sqlite3.open"',
        f"{FILES}::test_a_second_library_in_the_process_does_not_delete_the_wal",
    ),
    in_python(
        "the loss of the files is tried again",
        "G11",
        "runtime/committer",
        "isinstance(error, StoreError) and not isinstance(error, StoreReplaced)",
        "isinstance(error, StoreError)",
        f"{COMMITTER}::test_files_that_were_replaced_are_final_and_the_session_learns_it_after_the_members",
    ),
    in_python(
        "an idle worker goes on without files",
        "W6",
        "runtime/duties/maintenance",
        "by another engine of this process\n                self._context.session.store_replaced(error)",
        "nobody\n                del error",
        f"{SCENARIOS}::test_a_worker_that_is_idle_stops_too_and_its_run_raises_the_error",
    ),
    in_python(
        "bodies run on when the files are gone",
        "A5",
        "runtime/worker",
        "self.turns.evict_all()\n        self.attempts.evict_all()\n        self.lease.halt()",
        "self.turns.evict_all()\n        self.lease.halt()",
        f"{SCENARIOS}::test_an_engine_whose_files_are_gone_stops_with_one_error_and_one_line",
    ),
    in_python(
        "a lock on a file that was removed counts",
        "C1",
        "storage/sqlite/write_lock",
        "if self._inside.is_in_place() or not self._inside.reopen():",
        "if self._inside:",
        f"{LOCK}::test_a_lock_file_that_was_removed_is_made_again_and_excludes_everyone",
    ),
    in_python(
        "a socket that was removed stays away",
        "C1",
        "storage/sqlite/notifier",
        "if self._name not in names:",
        "if self._name == names:",
        f"{WAKE}::test_a_folder_or_a_socket_that_was_removed_is_made_again_and_wakes_everyone",
    ),
    in_python(
        "a shared statement replaces that of the database",
        "C1",
        "storage/relational/statements",
        "for owner in (SHARED, package):",
        "for owner in (package, SHARED):",
        f"{STATEMENTS}::test_a_statement_of_the_database_replaces_the_shared_one_and_an_unknown_name_is_an_error",
    ),
    in_python(
        "closing on a full disk raises",
        "G11",
        "storage/sqlite/writer",
        "with self._lock.held():\n            self._try_checkpoint()",
        "with self._lock.held():\n            self._checkpoint()",
        f"{WRITER}::test_a_disk_that_is_full_at_the_close_raises_nothing_and_leaves_nothing_open",
    ),
    in_python(
        "a store that closes makes all others wait for its write lock",
        "G11",
        "storage/sqlite/store",
        "lambda: _close(writer, files)",
        "lambda: files.close(lambda: (writer.checkpoint(), writer.close()))",
        f"{FILES}::test_a_store_that_waits_for_its_write_lock_to_close_does_not_delay_other_stores",
    ),
    in_python(
        "a client that only waits never compares the files",
        "G11",
        "runtime/signals",
        "        await self._store.check_files()\n        wanted",
        "        wanted",
        f"{SCENARIOS}::test_a_client_that_only_waits_notices_it_by_its_periodic_look",
    ),
    in_python(
        "repeated trouble is a line each time",
        "C1",
        "runtime/signals",
        "now_ms - self._logged_at_ms < PERIOD_MS",
        "now_ms < self._logged_at_ms",
        f"{TELLING}::test_repeated_trouble_is_one_line_a_minute_with_a_count",
    ),
    in_python(
        "each loop that meets an error of the store logs its own line",
        "C1",
        "runtime/signals",
        '"" if isinstance(error, StoreError) else what',
        "what",
        f"{TELLING}::test_repeated_trouble_is_one_line_a_minute_with_a_count",
    ),
    in_python(
        "a call of a closed client is an outage of the store",
        "C1",
        "runtime/signals",
        "isinstance(error, StoreReplaced | ClientClosed)",
        "isinstance(error, StoreReplaced)",
        f"{TELLING}::test_a_call_of_a_closed_client_is_no_outage_of_the_store",
    ),
    in_python(
        "one write ends an outage of the store",
        "C1",
        "runtime/signals",
        "series is None or now_ms - series.failed_at_ms < QUIET_MS",
        "series is None",
        f"{TELLING}::test_the_end_of_an_outage_is_one_line_with_the_count_and_the_duration",
    ),
)
