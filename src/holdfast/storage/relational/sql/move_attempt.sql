-- Guarded by owner, state and digits: a transaction that lost the race changes nothing, and knows it by the number
-- of rows (A2, L13). The last six digits count the exits of pending responses and belong to the instance's turns, so
-- they are neither compared nor lost.
-- Maintenance names the time by which the deadline must have passed: a heartbeat may have moved it (A6).
-- The plus keeps SQLite from trying the partial indexes on state, for which it would prepare the statement each
-- time.
UPDATE attempts SET state = ?1, ledger = ledger + ?2 - ?12, failure = ?3, closed_at_ms = ?4, expires_at_ms = NULL
WHERE number = ?5 AND execution = ?6 AND activity = ?7 AND dimension = ?8 AND attempt = ?9
  AND owner IS ?10 AND +state = ?11 AND ledger / 1000000 = ?12 / 1000000 AND (+expires_at_ms <= ?13 OR ?13 IS NULL)
