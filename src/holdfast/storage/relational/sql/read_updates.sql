-- A read: the updates of an instance with their states and answers.
SELECT id, state, answer FROM updates WHERE number = ? ORDER BY id LIMIT ?
