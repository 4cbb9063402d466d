-- The same hash is the same flow: saving it again changes nothing.
INSERT INTO flows (hash, name, version, definition, saved_at_ms) VALUES (?, ?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING
