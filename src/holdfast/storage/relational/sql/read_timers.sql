-- A read by the owner: timers change only in its own turns.
SELECT timer, due_at_ms FROM timers WHERE number = ? AND execution = ? ORDER BY timer
