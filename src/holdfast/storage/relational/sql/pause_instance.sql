-- R20: guarded by the state. The fence and the owner change, so that a turn that is being committed is rejected (G1).
UPDATE instances SET state = 'PAUSED', paused_from = state, paused_at_ms = ?1, pause_reason = ?2,
    fence = fence + 1, owner = NULL, claimable_at_ms = NULL
WHERE number = ?3 AND state IN ('REQUESTED', 'RUNNING')
