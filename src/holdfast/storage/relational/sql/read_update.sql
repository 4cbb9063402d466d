-- A read: what became of one update.
SELECT id, state, answer, asked FROM updates WHERE number = ? AND id = ?
