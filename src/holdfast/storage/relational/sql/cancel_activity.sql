-- The cancel column of the transition table (A1), for one activity; closed attempts do not change.
UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(?1 AS BIGINT) END,
    expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END,
    state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END
WHERE number = ?2 AND execution = ?3 AND activity = ?4 AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING')
