-- Read inside the write transaction: what a lost worker had, a batch at a time (W6).
SELECT number, execution, activity, dimension, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, closed_at_ms, expires_at_ms, heartbeat_at_ms, details, failures, losses, failure FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL LIMIT ?
