-- Said once: by the start, or by whoever first claims it, before its first turn. Counted from its creation by the store's clock.
UPDATE instances SET deadline_at_ms = created_at_ms + ?1, grace_ms = ?2, expires_at_ms = created_at_ms + ?1
WHERE number = ?3 AND grace_ms IS NULL AND closed_at_ms IS NULL
