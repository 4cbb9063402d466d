-- Conditional on the state that was read in this transaction (A9). The message that tells the code goes with it.
UPDATE instances SET state = ? WHERE number = ? AND state = ?
