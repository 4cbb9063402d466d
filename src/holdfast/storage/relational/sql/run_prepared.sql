-- The end of a preparation, guarded by owner, state and digits: an attempt that was cancelled, expired or released
-- meanwhile does not run (A2, L3).
UPDATE attempts SET state = 'RUNNING', ledger = ?, started_at_ms = ?, heartbeat_at_ms = ?, expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND owner = ?
  AND state = 'PREPARING' AND ledger = ?
RETURNING attempt
