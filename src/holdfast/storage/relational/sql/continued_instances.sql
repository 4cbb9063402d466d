-- A read: open instances that have executions before the current one, in the order of their numbers. The indexes of
-- owned and of unowned instances have every open one and no closed one.
SELECT number, workflow FROM (
    SELECT number, workflow, execution FROM instances WHERE owner IS NOT NULL
    UNION ALL
    SELECT number, workflow, execution FROM instances WHERE owner IS NULL AND closed_at_ms IS NULL
) AS continued
WHERE execution > 1 AND number > ?1
    AND EXISTS (SELECT 1 FROM history WHERE history.number = continued.number AND history.execution < continued.execution)
ORDER BY number LIMIT ?2
