-- A read: the attributes of some instances, by the primary key whatever the planner knows of the table.
SELECT number, name, type, value FROM attributes
WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1))) ORDER BY number, name, position
