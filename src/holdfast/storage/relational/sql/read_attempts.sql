-- A read: every attempt of an execution.
SELECT {attempt_columns} FROM attempts WHERE number = ? AND execution = ? ORDER BY activity, dimension, attempt
