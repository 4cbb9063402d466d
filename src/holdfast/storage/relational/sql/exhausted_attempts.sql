-- Read inside the write transaction: the attempts of an instance that wait for a person, because the retries before them
-- are used up (R26).
SELECT {attempt_columns} FROM attempts
WHERE number = ? AND (state || '') = 'READY' AND failure IS NOT NULL
ORDER BY execution, activity, dimension, attempt
{row_lock}
