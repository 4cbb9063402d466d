-- Accepted for the living attempt of this owner only (A6).
UPDATE attempts SET heartbeat_at_ms = ?, details = COALESCE(?, details), expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND owner = ?
  AND state IN ('RUNNING', 'CANCELLED_RUNNING')
RETURNING state, cancel_requested_at_ms
