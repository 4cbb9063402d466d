-- Two claimers never get the same row: locked rows are skipped. A build that has not tried an instance claims it
-- (G12). Without a build all are claimed, except those that crashed their owners. The candidates are found without locks,
-- by one look into the index for each key (R8), and are judged again when they are locked.
WITH candidates AS MATERIALIZED (
    SELECT found.number FROM ({claim_keys:?2}) AS keys CROSS JOIN LATERAL (
        SELECT number FROM instances
        WHERE state = 'BLOCKED' AND workflow = keys.workflow AND version = keys.version
          AND CASE ?3::text WHEN '' THEN losses < ?5 ELSE NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array(?3::text) END
        OFFSET 0
    ) AS found
    ORDER BY found.number LIMIT ?4
)
UPDATE instances SET owner = ?1, fence = fence + 1, state = 'RUNNING', blocked = NULL, losses = 0
WHERE number = ANY (ARRAY(
    SELECT number FROM instances
    WHERE number = ANY (ARRAY(SELECT number FROM candidates)) AND state = 'BLOCKED'
      AND CASE ?3::text WHEN '' THEN losses < ?5 ELSE NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array(?3::text) END
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING {instance_columns}
