-- A read, in the transaction that acts on them: children that the end of an execution concerns and that are open.
-- Whoever was asked to end already may clean up, unless the parent was terminated. Each that is acted on leaves this list.
SELECT {instance_columns}, parent_close
FROM instances
WHERE parent = ?1 AND parent_execution = ?2 AND closed_at_ms IS NULL AND parent_close <> 'abandon'
  AND (state <> 'CANCEL_REQUESTED' OR (?3 = 'terminated' AND parent_close = 'terminate'))
LIMIT ?4
{row_lock}
