-- A read, in the transaction that changes them: open children that the end of an execution concerns. A child that was
-- cancelled before may clean up, unless the parent was terminated. A child that was handled is not in this list any more.
SELECT {instance_columns}, parent_close
FROM instances
WHERE parent = ?1 AND parent_execution = ?2 AND closed_at_ms IS NULL AND parent_close <> 'abandon'
  AND (state <> 'CANCEL_REQUESTED' OR (?3 = 'terminated' AND parent_close = 'terminate'))
LIMIT ?4
{row_lock}
