-- One statement inside a write transaction, as claim_instances: a build that has not tried an instance claims it
-- (G12). Without a build all are claimed, except those that crashed their owners: every restart would lose another
-- worker.
UPDATE instances SET owner = ?1, fence = fence + 1, state = 'RUNNING', blocked = NULL, losses = 0
WHERE number IN (
    SELECT number FROM instances
    WHERE state = 'BLOCKED' AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM ({claim_keys:?2}) AS keys)
      AND CASE ?3 WHEN '' THEN losses < ?5 ELSE NOT EXISTS (SELECT 1 FROM json_each(blocked_by) WHERE value = ?3) END
    ORDER BY number LIMIT ?4
)
RETURNING {instance_columns}
