-- Events of unknown attempts that were refused long ago. A batch.
DELETE FROM activity_events WHERE row IN (
    SELECT row FROM activity_events WHERE state = 'REFUSED' AND handled_at_ms < ?1
      AND NOT EXISTS (SELECT 1 FROM offers WHERE exec_id = activity_exec_id)
    LIMIT ?2
)
