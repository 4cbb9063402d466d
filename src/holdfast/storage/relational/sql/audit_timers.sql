-- A read: all timers, in the order of their instances and executions.
SELECT number, execution, timer, due_at_ms FROM timers ORDER BY number, execution, timer
