-- Conditional on the state that was read in this transaction. The owner and the turn change, so that a turn that is being
-- committed is rejected (G1).
UPDATE instances SET state = ?1, outcome = ?2, turn = turn + 1, stamp_ms = CASE WHEN stamp_ms > ?3 THEN stamp_ms ELSE ?3 END, closed_at_ms = ?3,
    owner = NULL, claimable_at_ms = NULL, blocked = NULL, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL
WHERE number = ?4 AND state = ?5
