-- A read: whether claim_blocked would find anything for this build. One look into the index for each key.
SELECT 1 FROM ({claim_keys:?1}) AS keys CROSS JOIN LATERAL (
    SELECT 1 FROM instances
    WHERE state = 'BLOCKED' AND workflow = keys.workflow AND version = keys.version
      AND NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array(?2::text)
    OFFSET 0
) AS found
LIMIT 1
