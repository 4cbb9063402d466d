-- A read: the nearest deadline of any attempt, and of any open instance.
SELECT min(expires_at_ms) FROM attempts WHERE expires_at_ms > ?1
UNION ALL
SELECT min(expires_at_ms) FROM instances WHERE expires_at_ms > ?1 AND closed_at_ms IS NULL
