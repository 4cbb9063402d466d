-- Read inside the write transaction, before each is claimed by a guarded update. Rows that another worker is
-- claiming are skipped. The names are an array: joined with a list, a planner without statistics would read and sort
-- all READY attempts.
SELECT {attempt_columns},
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts
WHERE state = 'READY' AND queue = ? AND available_at_ms <= ? AND name = ANY (ARRAY(SELECT value FROM json_each(?)))
ORDER BY available_at_ms LIMIT ?
FOR NO KEY UPDATE OF attempts SKIP LOCKED
