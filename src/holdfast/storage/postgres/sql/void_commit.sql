-- Settles an unknown outcome: waits for the transaction that wrote the id, if it still runs. Afterwards the id is stored,
-- or it never will be. Writes in both cases, so that its own commit waits for a synchronous standby like any other.
INSERT INTO commits (id, part, at_ms, is_void) VALUES (?, ?, ?, true)
ON CONFLICT (id, part) DO UPDATE SET at_ms = excluded.at_ms
