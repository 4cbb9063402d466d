-- A read: one update, its state and its answer.
SELECT id, state, answer, asked FROM updates WHERE number = ? AND id = ?
