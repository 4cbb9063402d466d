-- Read inside the write transaction, before each is claimed by a conditional update. What somebody else is claiming is
-- passed over (L2). The names are an array: joined with a list, a planner without statistics would read and sort all that
-- waits.
SELECT number, execution, activity, dimension, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, closed_at_ms, expires_at_ms, heartbeat_at_ms, details, failures, losses, failure,
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts
WHERE state = 'READY' AND queue = ? AND available_at_ms <= ? AND name = ANY (ARRAY(SELECT value FROM json_each(?)))
ORDER BY available_at_ms LIMIT ?
FOR NO KEY UPDATE OF attempts SKIP LOCKED
