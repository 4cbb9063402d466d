-- Settles an unknown outcome: waits for the transaction that wrote the id, if it is still under way. Either it is there, or
-- it never will be. A write in both cases: its own commit waits, like any other, until a synchronous standby has it.
INSERT INTO commits (id, part, at_ms, is_void) VALUES (?, ?, ?, true)
ON CONFLICT (id, part) DO UPDATE SET at_ms = excluded.at_ms
