-- Read inside the write transaction: the external attempts that are open, with the offers under which reports are
-- accepted (R2).
SELECT offers.exec_id, {attempt_columns:attempts}
FROM offers JOIN attempts ON attempts.number = offers.number AND attempts.execution = offers.execution
    AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt
WHERE offers.number > ? AND offers.number <= ? AND offers.withdrawn_at_ms IS NULL AND attempts.closed_at_ms IS NULL
ORDER BY attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt
{row_lock}
