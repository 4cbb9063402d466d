-- Guarded by the state that was read in this transaction (A9). The deadline, which the pause has held, counts again (R25).
UPDATE instances SET state = ?1, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL, claimable_at_ms = ?2,
    deadline_at_ms = deadline_at_ms + ?3, expires_at_ms = deadline_at_ms + ?3
WHERE number = ?4 AND state = ?5
