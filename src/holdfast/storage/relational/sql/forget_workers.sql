-- Tombstones that nobody can need any more (W5): long dead, and nothing is in their name.
DELETE FROM workers WHERE state = 'INACTIVE' AND deadline_ms < ?
  AND NOT EXISTS (SELECT 1 FROM instances WHERE owner = workers.key)
  AND NOT EXISTS (
      SELECT 1 FROM attempts
      WHERE owner = workers.key AND closed_at_ms IS NULL
  )
