-- A read: whether claim_blocked would find anything for this build.
SELECT 1 FROM instances
WHERE state = 'BLOCKED' AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM ({claim_keys:?1}) AS keys)
  AND NOT EXISTS (SELECT 1 FROM json_each(blocked_by) WHERE value = ?2)
LIMIT 1
