-- Read inside the write transaction: an attempt that is still as its owner saw it when it did not know it (W3).
-- The plus keeps SQLite on the primary key.
SELECT number, execution, activity, dimension, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, closed_at_ms, expires_at_ms, heartbeat_at_ms, details, failures, losses, failure FROM attempts
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND +owner = ? AND +state = ? AND ledger = ?
