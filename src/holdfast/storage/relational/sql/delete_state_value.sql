-- Part of a guarded turn: the state value was deleted.
DELETE FROM kept WHERE number = ? AND key = ?
