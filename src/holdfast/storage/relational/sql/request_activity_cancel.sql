-- The cancel of a running attempt from outside of its workflow (A1). Guarded by state and digits; the body is asked to
-- stop, and the workflow waits until it has ended.
UPDATE attempts SET state = 'CANCELLED_RUNNING', cancel_requested_at_ms = ?1, expires_at_ms = ?2
WHERE number = ?3 AND execution = ?4 AND activity = ?5 AND dimension = ?6 AND attempt = ?7
  AND +state = 'RUNNING' AND ledger / 1000000 = ?8 / 1000000
