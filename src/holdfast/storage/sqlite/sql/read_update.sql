-- A read: what became of one update.
SELECT id, state, answer FROM updates WHERE number = ? AND id = ?
