-- A read, in the transaction that closes them: the open children of an ended execution. A child whose cancellation was
-- requested before cleans up, unless the parent was terminated. A child that was closed is not returned again.
SELECT {instance_columns}, parent_close
FROM instances
WHERE parent = ?1 AND parent_execution = ?2 AND closed_at_ms IS NULL AND parent_close <> 'abandon'
  AND (state <> 'CANCEL_REQUESTED' OR (?3 = 'terminated' AND parent_close = 'terminate'))
LIMIT ?4
{row_lock}
