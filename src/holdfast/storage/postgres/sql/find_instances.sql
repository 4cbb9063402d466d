-- A read: the instances that have these ids now, each by the index, whatever the planner knows of the table.
SELECT {instance_columns}
FROM instances WHERE id = ANY (ARRAY(SELECT value FROM json_each(?1))) AND superseded_at_ms IS NULL
