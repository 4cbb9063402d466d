-- Offers of a range whose instance closed before ?3, and whose events are deleted.
DELETE FROM offers WHERE exec_id > ?1 AND exec_id <= ?2
  AND EXISTS (SELECT 1 FROM instances WHERE instances.number = offers.number AND instances.closed_at_ms < ?3)
  AND NOT EXISTS (SELECT 1 FROM activity_events WHERE activity_exec_id = exec_id)
