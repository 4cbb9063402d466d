-- No row of the instance refers to this payload any more, as of this transaction (R34).
DELETE FROM payloads WHERE number = ? AND reference = ?
