-- Two claimers never get the same row: locked rows are skipped. A build that has not tried an instance claims it
-- (G12). Without a build all are claimed, except those that crashed their owners.
UPDATE instances SET owner = ?1, fence = fence + 1, state = 'RUNNING', blocked = NULL, losses = 0
WHERE number = ANY (ARRAY(
    SELECT number FROM instances
    WHERE state = 'BLOCKED' AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM ({claim_keys:?2}) AS keys)
      AND CASE ?3::text WHEN '' THEN losses < ?5 ELSE NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array(?3::text) END
    ORDER BY number LIMIT ?4
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING {instance_columns}
