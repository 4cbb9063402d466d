-- Conditional on the deadline that was read in this transaction: its grace begins once.
UPDATE instances SET expires_at_ms = ? WHERE number = ? AND expires_at_ms = ?
