-- Read inside the write transaction: no other transaction changes the instance before its end.
SELECT {instance_columns}
FROM instances WHERE number = ?
{row_lock}
