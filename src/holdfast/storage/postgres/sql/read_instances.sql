-- A read: several rows, as of one moment, by the primary key whatever the planner knows of the table.
SELECT {instance_columns}
FROM instances WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
