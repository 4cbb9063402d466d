-- A read; each is checked again in the transaction that enforces its deadline (C1).
SELECT number FROM instances WHERE expires_at_ms <= ? AND closed_at_ms IS NULL ORDER BY expires_at_ms LIMIT ?
