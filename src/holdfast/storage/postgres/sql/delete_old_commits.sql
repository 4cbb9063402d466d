-- Ids of commits whose outcome no worker can still ask for. A batch; rows that another process is deleting are skipped.
DELETE FROM commits
WHERE ctid = ANY (ARRAY(SELECT ctid FROM commits WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2 FOR UPDATE SKIP LOCKED))
