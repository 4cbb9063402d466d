-- The group's id, in the group's own transaction: an unknown outcome is settled by looking here. Waits for whoever writes
-- the same id at the same moment; changes nothing if it is there.
INSERT INTO commits (id, part, at_ms) VALUES (?, ?, ?) ON CONFLICT (id, part) DO NOTHING
