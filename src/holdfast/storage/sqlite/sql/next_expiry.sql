-- A read: the nearest deadline of any attempt.
SELECT min(expires_at_ms) FROM attempts WHERE expires_at_ms > ?
