-- A read: which attempts are in a worker's name, for the worker to compare with what it knows (W3).
SELECT number, execution, activity, attempt, dimension, state, ledger FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL
