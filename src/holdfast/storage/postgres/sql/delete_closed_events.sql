-- Events of attempts whose instance closed long ago. A batch; rows that another process is deleting are skipped.
DELETE FROM activity_events WHERE ctid = ANY (ARRAY(
    SELECT activity_events.ctid FROM offers
    JOIN instances ON instances.number = offers.number
    JOIN activity_events ON activity_events.activity_exec_id = offers.exec_id
    WHERE instances.closed_at_ms < ?1 AND activity_events.inserted_at_ms < ?1
    LIMIT ?2
    FOR UPDATE OF activity_events SKIP LOCKED
))
