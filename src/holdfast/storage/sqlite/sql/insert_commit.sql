-- The group's id, in the group's own transaction: an unknown outcome is settled by looking here.
INSERT INTO commits (id, at_ms) VALUES (?, ?)
