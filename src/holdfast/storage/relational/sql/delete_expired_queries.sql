-- Expired queries: their clients do not wait any longer.
DELETE FROM questions WHERE expires_at_ms <= ?
