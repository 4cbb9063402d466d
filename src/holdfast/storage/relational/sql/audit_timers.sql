-- A read: the timers of an instance, of every execution.
SELECT number, execution, timer, due_at_ms FROM timers WHERE number = ? ORDER BY execution, timer
