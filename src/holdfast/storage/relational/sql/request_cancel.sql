-- Guarded by the state that was read in this transaction (A9). The request is put into the inbox in the same
-- transaction.
UPDATE instances SET state = ? WHERE number = ? AND state = ?
