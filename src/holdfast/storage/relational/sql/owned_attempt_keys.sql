-- A read: the open attempts of a worker, which it compares with those that it holds (W3).
SELECT number, execution, activity, attempt, dimension, state, ledger, cancel_requested_at_ms FROM attempts
WHERE owner = ? AND closed_at_ms IS NULL
