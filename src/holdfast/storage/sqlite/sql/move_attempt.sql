-- Conditional on owner, state and digits: whoever lost the race changes nothing and learns it (A2, L13).
-- The plus keeps SQLite from trying the partial indexes on state, for which it would prepare the statement anew each time.
UPDATE attempts SET state = ?, ledger = ?, failure = ?, closed_at_ms = ?, expires_at_ms = NULL
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ?
  AND owner IS ? AND +state = ? AND ledger = ?
