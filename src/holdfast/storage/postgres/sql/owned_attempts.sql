-- Read inside the write transaction: open attempts of a lost worker, a batch at a time (W6). Locked in the order of
-- their keys.
SELECT {attempt_columns} FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL
ORDER BY number, execution, activity, dimension, attempt LIMIT ? FOR NO KEY UPDATE
