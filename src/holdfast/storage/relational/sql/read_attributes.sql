-- A read: the attributes of some instances, each value as its keys in their order.
SELECT number, name, type, value FROM attributes
WHERE number IN (SELECT value FROM json_each(?1)) ORDER BY number, name, position
