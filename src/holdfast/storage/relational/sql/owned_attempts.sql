-- Read inside the write transaction: what a lost worker had, a batch at a time (W6).
SELECT {attempt_columns} FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL LIMIT ?
