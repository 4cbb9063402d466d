-- Set once: by the start, or by the first claimer before the first turn. Counted from the creation by the store's
-- clock.
UPDATE instances SET deadline_at_ms = created_at_ms + ?1, grace_ms = ?2, expires_at_ms = created_at_ms + ?1
WHERE number = ?3 AND grace_ms IS NULL AND closed_at_ms IS NULL
