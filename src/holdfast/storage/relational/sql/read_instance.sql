-- A read: one row, as of one moment.
SELECT {instance_columns}
FROM instances WHERE number = ?
