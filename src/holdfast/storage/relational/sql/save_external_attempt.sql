-- Conditional on the state and the digits that this transaction has read or written before (A2, L13).
UPDATE attempts SET state = ?, ledger = ?, owner = ?, started_at_ms = ?, heartbeat_at_ms = ?, expires_at_ms = ?, details = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ?
  AND state = ? AND ledger = ?
