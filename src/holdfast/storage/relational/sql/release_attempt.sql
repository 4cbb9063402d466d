-- Its claimer was lost before the body began: the same attempt, for anyone (W6).
UPDATE attempts SET state = 'READY', owner = NULL, expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND state IN ('QUEUED', 'PREPARING')
