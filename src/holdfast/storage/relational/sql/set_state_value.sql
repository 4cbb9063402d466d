-- Part of a guarded turn: only the owner of an instance changes its state values.
INSERT INTO kept (number, key, value) VALUES (?, ?, ?)
ON CONFLICT (number, key) DO UPDATE SET value = excluded.value
