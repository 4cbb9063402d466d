"""Mutants of backups and restores: half a file, a moving source, guards, and what the lost time still knows."""

from typing import Final

from tools.mutations.mutant import KIT, in_python, in_sql

BACKUP: Final = "tests/scenarios/test_backup.py"
RESTORES: Final = "tests/crash/test_restores.py"
COMMAND: Final = "tests/unit/cli/test_backup.py"

RESTORING: Final = (
    in_python(
        "a backup reads each step in a transaction of its own",
        "R1",
        "storage/sqlite/backup",
        '            reader.execute("BEGIN")\n',
        "",
        BACKUP,
    ),
    in_python(
        "a backup has its name before it is checked",
        "R1",
        "audit/backup",
        "        if not problems:\n",
        "        if problems is not None:\n",
        BACKUP,
    ),
    in_python(
        "a backup replaces a file without being asked",
        "R1",
        "audit/backup",
        '        if not replace:\n            raise UsageError(f"{target} exists',
        '        if replace is None:\n            raise UsageError(f"{target} exists',
        BACKUP,
    ),
    in_python(
        "a backup replaces a file that appeared meanwhile",
        "R1",
        "audit/backup",
        "            _link(partial, target)",
        "            partial.replace(target)",
        BACKUP,
    ),
    in_python(
        "a backup is put beside the WAL of another database",
        "R1",
        "audit/backup",
        "        if beside.exists() and beside.stat().st_size:",
        "        if beside.is_dir():",
        BACKUP,
    ),
    in_python(
        "two backups write one file",
        "R1",
        "audit/backup",
        "        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "        pass",
        BACKUP,
    ),
    in_python(
        "a backup replaces the log of a store",
        "R1",
        "audit/backup",
        "if kept and database.exists():",
        "if False:",
        BACKUP,
    ),
    in_python(
        "a restore lifts the numbers beside an active worker",
        "R2",
        "storage/relational/apply/restoring",
        "    if not member.is_forced and transaction.exists(transaction.sql.any_active_worker):",
        "    if False:",
        KIT,
    ),
    in_python(
        "a restore raises fences beside an active worker",
        "R2",
        "storage/relational/apply/restoring",
        "    if not member.is_forced and transaction.exists(sql.any_active_worker):",
        "    if False:",
        KIT,
    ),
    in_python(
        "a store without instances keeps its counter in a restore",
        "R2",
        "storage/relational/apply/restoring",
        "        transaction.update(transaction.sql.begin_numbers, NUMBERS_LIFTED)",
        "        pass",
        KIT,
    ),
    in_python(
        "a restore takes a claim with a report that was not handled",
        "R3",
        "storage/relational/apply/restoring",
        "AttemptState.READY or has_new_report(transaction, attempt):",
        "AttemptState.READY:",
        KIT,
    ),
    in_python(
        "a restore leaves reports behind under the former exec id",
        "R3",
        "storage/relational/apply/restoring",
        "    transaction.update(transaction.sql.rename_reports, renamed, exec_id)\n",
        "",
        KIT,
    ),
    in_python(
        "a restore forgets external attempts of closed instances",
        "R2",
        "storage/relational/apply/restoring",
        "    last = max(raised) if is_full else LAST_NUMBER",
        "    last = max(raised, default=member.after)",
        KIT,
    ),
    in_python(
        "a restore counts a loss for each attempt",
        "R3",
        "storage/relational/apply/restoring",
        "            reassign(transaction, attempt, is_clean=True)",
        "            reassign(transaction, attempt, is_clean=False)",
        KIT,
    ),
    in_sql(
        "a restore raises the fences of closed instances", "R2", "raise_fences", " AND closed_at_ms IS NULL", "", KIT
    ),
    in_sql("a restore repeats its first batch", "R2", "raise_fences", "number > ?2", "number > ?2 * 0", KIT),
    in_sql(
        "the steps that ran are listed without the cancelled ones",
        "R3",
        "running_attempts",
        "IN ('RUNNING', 'CANCELLED_RUNNING')",
        "= 'RUNNING'",
        KIT,
    ),
    in_python(
        "a restore is not refused beside a live worker",
        "R2",
        "client/restoring",
        "    if live and not force:\n",
        "    if live is None:\n",
        RESTORES,
    ),
    in_python(
        "a restore leaves worker keys alive",
        "R2",
        "client/restoring",
        "        await _end_key(committer, WorkerKey(key))",
        "        pass",
        RESTORES,
    ),
    in_python(
        "a dead process on this host prevents a restore",
        "R2",
        "client/restoring",
        "    return identity is None or not is_dead(identity, this_process())",
        "    return True",
        RESTORES,
    ),
    in_python(
        "a dry run changes the store",
        "R2",
        "cli/backup",
        "        if dry_run:\n            report",
        "        if dry_run is None:\n            report",
        COMMAND,
    ),
)
