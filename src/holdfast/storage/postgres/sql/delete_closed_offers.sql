-- Offers whose instance closed long ago, and whose events are deleted. A batch; rows that another process is deleting
-- are skipped.
DELETE FROM offers WHERE exec_id = ANY (ARRAY(
    SELECT offers.exec_id FROM offers
    JOIN instances ON instances.number = offers.number
    WHERE instances.closed_at_ms < ?1
      AND NOT EXISTS (SELECT 1 FROM activity_events WHERE activity_exec_id = offers.exec_id)
    LIMIT ?2
    FOR UPDATE OF offers SKIP LOCKED
))
