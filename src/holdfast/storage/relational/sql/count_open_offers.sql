-- A read: the offers that an executor may claim now, by queue.
SELECT attempts.queue, count(*)
FROM attempts JOIN offers ON offers.number = attempts.number AND offers.execution = attempts.execution
    AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension
    AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL
WHERE attempts.state = 'READY' AND attempts.available_at_ms <= ?
GROUP BY attempts.queue
