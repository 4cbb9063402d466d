-- Requests that were refused long ago. A batch; rows that another process is deleting are skipped.
DELETE FROM requests WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM requests WHERE state = 'REFUSED' AND handled_at_ms < ?1 LIMIT ?2 FOR UPDATE SKIP LOCKED
))
