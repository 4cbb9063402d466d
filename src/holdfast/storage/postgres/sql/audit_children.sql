-- A read: the children of all instances and executions; of each that is open, whether it was asked to end.
SELECT parent, parent_execution, parent_step, number, id, workflow, state, outcome, parent_close, (
    state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'TERMINATED') AND (
        EXISTS (SELECT 1 FROM inbox WHERE inbox.number = instances.number AND position('"cancel_requested"'::bytea IN event) > 0)
        OR EXISTS (SELECT 1 FROM history WHERE history.number = instances.number AND position('"cancel_requested"'::bytea IN events) > 0)
    )
)::int
FROM instances WHERE parent IS NOT NULL ORDER BY parent, parent_execution, parent_step
