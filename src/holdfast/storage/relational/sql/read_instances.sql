-- A read: several rows, as of one moment.
SELECT {instance_columns}
FROM instances WHERE number IN (SELECT value FROM json_each(?1))
