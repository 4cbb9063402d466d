-- A read: the children of all instances and executions; of each that is open, whether it was asked to end.
SELECT parent, parent_execution, parent_step, number, id, workflow, state, outcome, parent_close,
    state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'TERMINATED') AND (
        EXISTS (SELECT 1 FROM inbox WHERE inbox.number = instances.number AND instr(event, CAST('"cancel_requested"' AS BLOB)))
        OR EXISTS (SELECT 1 FROM history WHERE history.number = instances.number AND instr(events, CAST('"cancel_requested"' AS BLOB)))
    )
FROM instances WHERE parent IS NOT NULL ORDER BY parent, parent_execution, parent_step
