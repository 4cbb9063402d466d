-- A read: whether there are refused rows of clients that may be deleted.
SELECT 1 WHERE EXISTS (SELECT 1 FROM requests WHERE state = 'REFUSED' AND handled_at_ms < ?1)
    OR EXISTS (
        SELECT 1 FROM activity_events WHERE state = 'REFUSED' AND handled_at_ms < ?1
          AND NOT EXISTS (SELECT 1 FROM offers WHERE exec_id = activity_exec_id)
    )
