-- Read inside the write transaction: an attempt that is still as its owner saw it when it did not know it (W3).
-- The plus keeps SQLite on the primary key.
SELECT {attempt_columns} FROM attempts
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND +owner = ? AND +state = ? AND ledger = ?
