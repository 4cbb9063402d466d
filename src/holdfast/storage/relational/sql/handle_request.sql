-- The row is locked by this transaction.
UPDATE requests SET state = ?, refusal = ?, instance_number = ?, handled_at_ms = ? WHERE row = ? AND state = 'NEW'
