-- The claimer was lost before the body began: any worker may claim the same attempt (W6).
UPDATE attempts SET state = 'READY', owner = NULL, expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND state IN ('QUEUED', 'PREPARING')
