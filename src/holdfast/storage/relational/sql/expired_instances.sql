-- A read; each is then judged again in the transaction that acts upon it (C1).
SELECT number FROM instances WHERE expires_at_ms <= ? AND closed_at_ms IS NULL ORDER BY expires_at_ms LIMIT ?
