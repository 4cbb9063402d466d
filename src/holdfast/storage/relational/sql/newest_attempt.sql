-- Read inside the write transaction, which has locked the instance: no next attempt opens before its end.
SELECT {attempt_columns} FROM attempts
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ?
ORDER BY attempt DESC LIMIT 1
{row_lock}
