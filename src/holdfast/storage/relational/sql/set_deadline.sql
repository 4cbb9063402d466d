-- Set once: by the start, or by the first claimer before the first turn. Counted by the store's clock, from the creation
-- or from the later time for the first turn.
UPDATE instances SET grace_ms = ?2,
    deadline_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + ?1,
    expires_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + ?1
WHERE number = ?3 AND grace_ms IS NULL AND closed_at_ms IS NULL
