-- A read: reports that wait although their attempt has ended or was released, or although no offer has their exec id.
SELECT activity_events.row, offers.name, COALESCE(offers.withdrawn_at_ms, attempts.closed_at_ms, 0)
FROM activity_events
LEFT JOIN offers ON offers.exec_id = activity_events.activity_exec_id
LEFT JOIN attempts ON attempts.number = offers.number AND attempts.execution = offers.execution
    AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt
WHERE activity_events.state = 'WAITING'
    AND (offers.withdrawn_at_ms IS NOT NULL OR attempts.closed_at_ms IS NOT NULL OR attempts.number IS NULL)
ORDER BY activity_events.row
