-- What nobody waits for any more: their askers are gone.
DELETE FROM questions WHERE expires_at_ms <= ?
