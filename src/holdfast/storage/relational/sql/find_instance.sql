-- A read: the instance that has the id now.
SELECT {instance_columns}
FROM instances WHERE id = ? AND superseded_at_ms IS NULL
