-- An offer with its attempt, read inside the write transaction: reports about one attempt are handled one after the other
-- (A2).
SELECT {attempt_columns:attempts}, claim, sequences, withdrawn_at_ms
FROM offers JOIN attempts ON attempts.number = offers.number AND attempts.execution = offers.execution
    AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt
WHERE offers.exec_id = ?
{row_lock}
