-- A client's row, as long as there are not too many of them.
INSERT INTO questions (id, number, name, input, expires_at_ms)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE (SELECT count(*) FROM questions) < ?6 ON CONFLICT (id) DO NOTHING
