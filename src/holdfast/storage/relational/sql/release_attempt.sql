-- The claimer was lost before the body began: any worker may claim the same attempt (W6), unless its instance is PAUSED:
-- then its times are those of a withheld attempt (R21).
UPDATE attempts SET state = 'READY', owner = NULL, available_at_ms = ?, expires_at_ms = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND state IN ('QUEUED', 'PREPARING')
