-- A read; each is then ended by a conditional update (A5, C5).
SELECT number, execution, activity, dimension, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, closed_at_ms, expires_at_ms, heartbeat_at_ms, details, failures, losses, failure,
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts
WHERE expires_at_ms <= ?
ORDER BY expires_at_ms LIMIT ?
