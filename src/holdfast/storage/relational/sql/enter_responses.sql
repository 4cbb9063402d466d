-- Leg 2 entry of pending responses (L4), once, and only for the running attempt of this owner: conditional on all digits
-- but the last six, which count exits and belong to the instance's turns (L13). A response counts as a heartbeat (A6).
UPDATE attempts SET ledger = ledger + ?1, heartbeat_at_ms = ?2, expires_at_ms = ?3
WHERE number = ?4 AND execution = ?5 AND activity = ?6 AND dimension = ?7 AND attempt = ?8
  AND owner = ?9 AND +state = 'RUNNING' AND ledger / 1000000 = ?10
