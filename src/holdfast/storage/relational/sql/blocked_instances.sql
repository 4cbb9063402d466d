-- A read: BLOCKED instances in the order of their numbers, by the index that has them (R17). The plus keeps a database
-- from reading the table in the order of its numbers.
SELECT number, id, workflow, version, substr(blocked, 1, 8000), blocked_by, created_at_ms
FROM instances WHERE state = 'BLOCKED' AND +number > ? ORDER BY +number LIMIT ?
