-- A read: all attempts, in the order of their instances and executions.
SELECT number, execution, activity, dimension, attempt, name, state, ledger, owner, input, options, closed_at_ms, failure
FROM attempts ORDER BY number, execution, activity, dimension, attempt
