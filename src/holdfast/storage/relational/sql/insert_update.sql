-- Part of a delivery that was judged in this transaction. An update that was rejected before is asked again.
INSERT INTO updates (number, id, state, asked) VALUES (?1, ?2, 'asked', ?3)
ON CONFLICT (number, id) DO UPDATE SET state = 'asked', asked = ?3, answer = NULL, expires_at_ms = NULL
