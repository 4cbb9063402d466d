-- Nobody asks for the outcome of a commit that long ago. So many at a time, and not those that another one is at.
DELETE FROM commits
WHERE ctid = ANY (ARRAY(SELECT ctid FROM commits WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2 FOR UPDATE SKIP LOCKED))
