-- A read: the attempts of an instance, of every execution.
SELECT number, execution, activity, dimension, attempt, name, state, ledger, owner, input, options, closed_at_ms, failure
FROM attempts WHERE number = ? ORDER BY execution, activity, dimension, attempt
