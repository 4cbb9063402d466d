-- Read inside the write transaction, before each is claimed by a conditional update.
SELECT {attempt_columns},
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts
WHERE state = 'READY' AND queue = ? AND available_at_ms <= ? AND name IN (SELECT value FROM json_each(?))
ORDER BY available_at_ms LIMIT ?
