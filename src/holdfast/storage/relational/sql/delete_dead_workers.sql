-- Keys that are long dead and own no rows (W5). A batch.
DELETE FROM workers WHERE key IN (
    SELECT key FROM workers WHERE state = 'INACTIVE' AND deadline_ms < ?1
      AND NOT EXISTS (SELECT 1 FROM instances WHERE owner = workers.key)
      AND NOT EXISTS (SELECT 1 FROM attempts WHERE owner = workers.key AND closed_at_ms IS NULL)
    LIMIT ?2
)
