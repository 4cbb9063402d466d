-- Read inside the write transaction: the current instance of the id, which no other transaction changes before its
-- end.
SELECT {instance_columns}
FROM instances WHERE id = ? AND superseded_at_ms IS NULL
{row_lock}
