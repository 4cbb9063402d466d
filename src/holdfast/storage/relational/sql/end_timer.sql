-- Part of a guarded turn: the timer fired or was cancelled.
DELETE FROM timers WHERE number = ? AND execution = ? AND timer = ?
