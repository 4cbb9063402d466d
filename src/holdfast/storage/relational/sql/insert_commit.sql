-- The group's id, in the group's own transaction: an unknown outcome is settled by looking here. Looked for before the
-- group begins; a group that had to be halved writes it with each part.
INSERT INTO commits (id, at_ms) VALUES (?, ?) ON CONFLICT (id) DO NOTHING
