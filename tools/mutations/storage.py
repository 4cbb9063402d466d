"""Mutants of the store: its statements, and how groups, attempts and leases are written."""

from typing import Final

from tools.mutations.mutant import LIMITS, POWER, in_python, in_sql

STATEMENTS: Final = (
    in_sql("a turn ignores the fence", "G1", "commit_turn", "AND fence = ?", "AND (fence = ? OR 1)"),
    in_sql("a turn ignores the owner", "G1", "commit_turn", "AND owner = ?", "AND (owner = ? OR 1)"),
    in_sql("a turn ignores the turn it saw", "G9", "commit_turn", "AND turn = ?", "AND (turn = ? OR 1)"),
    in_sql("a claim does not raise the fence", "G1", "claim_instances", "fence = fence + 1", "fence = fence + 0"),
    in_sql("a claim of a blocked one does not raise the fence", "G1", "claim_blocked", "fence + 1", "fence + 0"),
    in_sql(
        "a claim takes workflows it does not know", "G12", "claim_instances", "WHERE workflow = each.value", "WHERE 1"
    ),
    in_sql(
        "a claim takes what is not due", "G2", "claim_instances", "claimable_at_ms <= ?2", "claimable_at_ms <= ?2 + 1"
    ),
    in_sql("a release ignores the fence", "G2", "release_instance", "AND fence = ?", "AND (fence = ? OR 1)"),
    in_sql("a block ignores the fence", "G12", "block_instance", "AND fence = ?4", "AND (fence = ?4 OR 1)"),
    in_sql("a completion ignores the owner", "A2", "move_attempt", "AND owner IS ?10", "AND (owner IS ?10 OR 1)"),
    in_sql("a completion ignores the state", "A2", "move_attempt", "+state = ?11", "(+state = ?11 OR 1)"),
    in_sql("a completion ignores the digits", "L13", "move_attempt", "ledger = ?12", "(ledger = ?12 OR 1)"),
    in_sql("a deadline ends a renewed attempt", "A6", "move_attempt", "+expires_at_ms <= ?13", "1"),
    in_sql("leg 2 is left without the guard on d3", "L13", "exit_response", "AND ledger = ?", "AND (ledger = ? OR 1)"),
    in_sql("d3 of an unread answer stays open", "L6", "exit_responses", "ledger + 1 - 1000000000000", "ledger + 1"),
    in_sql(
        "the end closes digits without an answer",
        "A8",
        "exit_responses",
        "ledger % 1000000000000 / 1000000 = ledger % 1000000 + 1",
        "ledger > 0",
    ),
    in_sql("a heartbeat of anyone counts", "A6", "heartbeat_attempt", "AND owner = ?", "AND (owner = ? OR 1)"),
    in_sql("a heartbeat of the dead counts", "A6", "heartbeat_attempt", "AND state IN", "OR state IN"),
    in_sql("a retry is claimed before its time", "G13", "ready_attempts", "available_at_ms <= ?", "? IS NOT NULL"),
    in_sql("a renewed lease expires", "W6", "lose_worker", "deadline_ms <= ?2", "?2 IS NOT NULL"),
    in_sql("the store's clock goes back", "W9", "advance_clock", "max(now_ms, ?)", "?"),
    in_sql(
        "nobody is woken for a message", "G5", "wake_instance", "SET claimable_at_ms = 0", "SET claimable_at_ms = NULL"
    ),
    in_sql("a payload is stored twice", "G11", "insert_payload", "ON CONFLICT (number, reference) DO NOTHING", ""),
)

STORE: Final = (
    in_python(
        "a dead worker commits",
        "W6",
        "storage/sqlite/members",
        "if actor is not None and not alive[actor]:",
        "if actor is not None and alive[actor] is None:",
    ),
    in_python(
        "a turn is taken although an answer was stale",
        "L9",
        "storage/sqlite/members",
        "if not stale and _advance(",
        "if _advance(",
    ),
    in_python(
        "a rejected turn loses its answers",
        "G5",
        "storage/sqlite/members",
        "attempts.reopen_for_inbox(transaction, completion)",
        "attempts.reopen_for_inbox",
    ),
    in_python(
        "a message stays after it was consumed",
        "G10",
        "storage/sqlite/members",
        "for row in turn.consumed:",
        "for row in turn.consumed[:0]:",
    ),
    in_python(
        "a message is consumed that was not in the turn",
        "G10",
        "storage/sqlite/members",
        "change(sql.delete_inbox, row, number) == 1",
        "change(sql.clear_inbox, number) >= 0",
    ),
    in_python(
        "a turn without events leaves a gap in the history",
        "G9",
        "storage/sqlite/members",
        "turn.turn + 1 if turn.events else turn.turn",
        "turn.turn + 1",
    ),
    in_python(
        "a closed instance leaves its attempts behind",
        "C5",
        "storage/sqlite/closing",
        "change(sql.cancel_activities, transaction.now_ms, number)",
        "sql.cancel_activities",
    ),
    in_python(
        "a closed instance leaves its timers behind",
        "C5",
        "storage/sqlite/closing",
        "change(sql.clear_timers, number)",
        "sql.clear_timers",
    ),
    in_python(
        "the input's hash does not count",
        "G3",
        "storage/sqlite/members",
        "StartIdentity(start.workflow, start.input_hash)",
        "StartIdentity(start.workflow, existing.input_hash)",
    ),
    in_python(
        "a lost worker keeps its instances",
        "W6",
        "storage/sqlite/members",
        "transaction.change(sql.disown_instances, lose.key, lose.limit)",
        "0",
    ),
    in_python(
        "a failure opens no next attempt",
        "G13",
        "storage/sqlite/attempts",
        "insert_attempt(transaction, key.number, key.execution, retry.next)",
        "insert_attempt",
    ),
    in_python(
        "an answer wakes nobody",
        "G5",
        "storage/sqlite/attempts",
        "transaction.change(sql.wake_instance, key.number)",
        "sql.wake_instance",
    ),
    in_python(
        "a stale heartbeat token counts",
        "W4",
        "storage/sqlite/writer",
        "WorkerState(row.state), row.token,",
        "WorkerState(row.state), beat.token or row.token,",
    ),
    in_python(
        "a dead worker's key is revived",
        "W5",
        "storage/sqlite/writer",
        "WorkerState(row.state), row.token,",
        "WorkerState.ACTIVE, row.token,",
    ),
    in_python(
        "one bad member takes its group down",
        "L13",
        "storage/sqlite/writer",
        "if len(members) == 1:\n                return [Failed(error=error)]",
        "if members:\n                return [Failed(error=error) for _ in members]",
    ),
    in_python(
        "a group's id is not stored",
        "L13",
        "storage/sqlite/writer",
        "transaction.change(sql.insert_commit, commit_id, transaction.now_ms)",
        "sql.insert_commit",
    ),
    in_python(
        "a group is written twice",
        "L13",
        "storage/sqlite/writer",
        "if self._cursor.execute(sql.find_commit, (commit_id,)).fetchall():",
        "if commit_id is None:",
    ),
    in_python(
        "an acknowledged commit is not on disk",
        "G11",
        "storage/sqlite/connection",
        '"full": "FULL"',
        '"full": "NORMAL"',
        POWER,
    ),
    in_python(
        "a clean stop counts as a loss",
        "A10",
        "storage/endings",
        "0 if is_clean else 1",
        "1",
    ),
    in_python(
        "a failure that forbids retries is retried",
        "G13",
        "storage/endings",
        "if failure.retryable is False:",
        "if failure.retryable is Ellipsis:",
    ),
    in_python(
        "heartbeat details are lost with their attempt",
        "A6",
        "storage/endings",
        "details=attempt.details",
        "details=None",
        LIMITS,
    ),
)
