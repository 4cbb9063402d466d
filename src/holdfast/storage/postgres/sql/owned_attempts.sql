-- Read inside the write transaction: what a lost worker had, a batch at a time (W6). Locked in their order.
SELECT {attempt_columns} FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL
ORDER BY number, execution, activity, dimension, attempt LIMIT ? FOR NO KEY UPDATE
