-- A read: what was sent to change instances, and what came of it.
SELECT number, id, state, answer FROM updates ORDER BY number, id
