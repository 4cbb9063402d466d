-- Keys that are long dead and own no rows (W5). A batch; rows that another process is deleting are skipped.
DELETE FROM workers WHERE key = ANY (ARRAY(
    SELECT key FROM workers WHERE state = 'INACTIVE' AND deadline_ms < ?1
      AND NOT EXISTS (SELECT 1 FROM instances WHERE owner = workers.key)
      AND NOT EXISTS (SELECT 1 FROM attempts WHERE owner = workers.key AND closed_at_ms IS NULL)
    LIMIT ?2
    FOR UPDATE SKIP LOCKED
))
