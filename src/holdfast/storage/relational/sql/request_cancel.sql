-- Guarded by the state that was read in this transaction (A9). The request is put into the inbox in the same
-- transaction.
UPDATE instances SET state = ?, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL WHERE number = ? AND state = ?
