-- A read: an offer with its attempt.
SELECT offers.exec_id, offers.entry, offers.withdrawn_at_ms, {attempt_columns:attempts},
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM offers JOIN attempts ON attempts.number = offers.number AND attempts.execution = offers.execution
    AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension
    AND attempts.attempt = offers.attempt
WHERE offers.exec_id = ?
