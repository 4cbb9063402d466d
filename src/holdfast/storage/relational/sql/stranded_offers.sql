-- A read: offers with rows that wait although the attempt has ended, or was released.
SELECT DISTINCT activity_events.activity_exec_id
FROM activity_events
JOIN offers ON offers.exec_id = activity_events.activity_exec_id
JOIN attempts ON attempts.number = offers.number AND attempts.execution = offers.execution
    AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt
WHERE activity_events.state = 'WAITING' AND (offers.withdrawn_at_ms IS NOT NULL OR attempts.closed_at_ms IS NOT NULL)
LIMIT ?
