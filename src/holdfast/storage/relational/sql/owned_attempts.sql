-- Read inside the write transaction: open attempts of a lost worker, a batch at a time (W6).
SELECT {attempt_columns} FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL LIMIT ?
