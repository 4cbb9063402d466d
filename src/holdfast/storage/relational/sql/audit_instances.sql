-- A read, inside one transaction with the others of the audit: all instances, oldest first.
SELECT {raw_instance_columns}
FROM instances ORDER BY number
