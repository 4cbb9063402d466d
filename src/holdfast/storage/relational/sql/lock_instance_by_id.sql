-- Read inside the write transaction: the instance that has the id now, which nobody else changes until its end.
SELECT {instance_columns}
FROM instances WHERE id = ? AND superseded_at_ms IS NULL
{row_lock}
