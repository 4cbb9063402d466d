-- Follows the end of the instance in the same transaction.
UPDATE instances SET error = ? WHERE number = ?
