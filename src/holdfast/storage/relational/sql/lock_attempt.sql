-- Read inside the write transaction: the attempt does not change before the decision is written (A2).
SELECT {attempt_columns} FROM attempts
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ?
{row_lock}
