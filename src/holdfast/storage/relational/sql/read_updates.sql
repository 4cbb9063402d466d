-- A read: the updates of an instance, and what became of them.
SELECT id, state, answer FROM updates WHERE number = ? ORDER BY id LIMIT ?
