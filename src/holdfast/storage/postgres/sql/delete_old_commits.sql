-- The outcome of such an old commit is no longer queried. At most ?2 at a time; rows that another session locks stay.
DELETE FROM commits
WHERE ctid = ANY (ARRAY(SELECT ctid FROM commits WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2 FOR UPDATE SKIP LOCKED))
