-- Read inside the write transaction: an instance that nobody else changes until its end.
SELECT {instance_columns}
FROM instances WHERE number = ?
{row_lock}
