-- A read: whether claim_blocked would find anything for this build.
SELECT 1 FROM instances
WHERE state = 'BLOCKED' AND workflow IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM json_each(blocked_by) WHERE value = ?2)
LIMIT 1
