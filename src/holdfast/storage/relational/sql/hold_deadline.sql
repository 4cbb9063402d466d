-- The deadline of a PAUSED instance has passed: it is due again from its resume on (R25).
UPDATE instances SET expires_at_ms = NULL WHERE number = ? AND state = 'PAUSED'
