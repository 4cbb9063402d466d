-- A read: all attributes, each value in the order of its keys.
SELECT number, name, position, type, value, created_at_ms FROM attributes ORDER BY number, name, position
