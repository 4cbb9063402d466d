-- The key of a flow that was created with its first turn (K2).
UPDATE instances SET collation_key = ? WHERE number = ?
