-- The group's id, in the group's own transaction: it settles an unknown outcome. Waits for a transaction that
-- inserts the same id; changes nothing if the id is stored.
INSERT INTO commits (id, part, at_ms) VALUES (?, ?, ?) ON CONFLICT (id, part) DO NOTHING
