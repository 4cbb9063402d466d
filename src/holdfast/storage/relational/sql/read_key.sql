-- A read: the key of a flow; null for workflows written as code.
SELECT collation_key FROM instances WHERE number = ?
