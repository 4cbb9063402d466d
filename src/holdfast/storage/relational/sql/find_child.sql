-- A read: the instance that one step of an execution started.
SELECT {instance_columns}
FROM instances WHERE parent = ? AND parent_execution = ? AND parent_step = ?
{row_lock}
