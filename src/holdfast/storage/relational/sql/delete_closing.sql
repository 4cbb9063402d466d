-- No child is left that the end of this execution concerns, as of this transaction.
DELETE FROM closings WHERE number = ? AND execution = ?
