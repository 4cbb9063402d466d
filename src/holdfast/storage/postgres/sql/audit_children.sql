-- A read: the children of an instance, of every execution, and whether each was asked to end.
SELECT number, id, workflow, state, outcome, parent_execution, parent_step, parent_close, (
    EXISTS (SELECT 1 FROM inbox WHERE inbox.number = instances.number AND position('"cancel_requested"'::bytea IN event) > 0)
    OR EXISTS (SELECT 1 FROM history WHERE history.number = instances.number AND position('"cancel_requested"'::bytea IN events) > 0)
)::int
FROM instances WHERE parent = ? ORDER BY parent_execution, parent_step
