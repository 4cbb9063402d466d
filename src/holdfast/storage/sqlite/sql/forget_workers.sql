-- Tombstones that nobody can need any more (W5).
DELETE FROM workers WHERE state = 'INACTIVE' AND deadline_ms < ?
  AND NOT EXISTS (SELECT 1 FROM instances WHERE owner = workers.key)
