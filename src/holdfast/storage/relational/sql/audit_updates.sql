-- A read: what was sent to change an instance, and what came of it.
SELECT number, id, state, answer FROM updates WHERE number = ? ORDER BY id
