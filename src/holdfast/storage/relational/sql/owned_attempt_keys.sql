-- A read: the open attempts of a worker, which it compares with those that it holds (W3).
SELECT number, execution, activity, attempt, dimension, state, ledger FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL
