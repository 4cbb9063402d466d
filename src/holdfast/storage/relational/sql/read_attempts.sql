-- A read: every attempt of an execution.
SELECT number, execution, activity, dimension, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, closed_at_ms, expires_at_ms, heartbeat_at_ms, details, failures, losses, failure FROM attempts WHERE number = ? AND execution = ? ORDER BY activity, dimension, attempt
