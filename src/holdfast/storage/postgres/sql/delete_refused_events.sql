-- Events of unknown attempts that were refused long ago. A batch; rows that another process is deleting are skipped.
DELETE FROM activity_events WHERE ctid = ANY (ARRAY(
    SELECT activity_events.ctid FROM activity_events WHERE state = 'REFUSED' AND handled_at_ms < ?1
      AND NOT EXISTS (SELECT 1 FROM offers WHERE exec_id = activity_exec_id)
    LIMIT ?2
    FOR UPDATE SKIP LOCKED
))
