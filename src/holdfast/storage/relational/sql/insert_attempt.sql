-- The primary key refuses to open the same attempt twice (L13).
INSERT INTO attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, expires_at_ms, failures, losses, details)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
