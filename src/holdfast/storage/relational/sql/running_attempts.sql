-- A read: the attempts whose bodies run, a page in the order of their keys, with their instances (R3).
SELECT {attempt_columns:attempts}, instances.id, instances.workflow
FROM attempts JOIN instances ON instances.number = attempts.number
WHERE (attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt) > (?, ?, ?, ?, ?)
    AND attempts.closed_at_ms IS NULL AND attempts.state IN ('RUNNING', 'CANCELLED_RUNNING')
ORDER BY attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt LIMIT ?
