-- A claim for a launcher: conditional on READY and on the digits that were read in this transaction (A2).
UPDATE attempts SET state = 'QUEUED', ledger = ?, owner = ?, heartbeat_at_ms = ?, expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND state = 'READY' AND ledger = ?
