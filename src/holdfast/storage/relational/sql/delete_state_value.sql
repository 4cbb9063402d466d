-- Part of a guarded turn: the key-value was taken away.
DELETE FROM kept WHERE number = ? AND key = ?
