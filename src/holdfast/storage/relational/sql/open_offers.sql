-- A read: offers that an executor may claim now, oldest first. The claim is a conditional update later (A2).
SELECT offers.exec_id, offers.entry, offers.withdrawn_at_ms, {attempt_columns:attempts},
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts JOIN offers ON offers.number = attempts.number AND offers.execution = attempts.execution
    AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension
    AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL
WHERE attempts.state = 'READY' AND attempts.available_at_ms <= ?1
    AND (CAST(?2 AS TEXT) IS NULL OR attempts.queue IN (SELECT value FROM json_each(?2)))
    AND (CAST(?3 AS TEXT) IS NULL OR attempts.name IN (SELECT value FROM json_each(?3)))
ORDER BY attempts.available_at_ms, offers.exec_id LIMIT ?4
