-- A read: all attempts, in the order of their instances and executions.
SELECT {raw_attempt_columns}
FROM attempts ORDER BY number, execution, activity, dimension, attempt
