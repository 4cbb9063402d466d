-- A read: all turns, in the order of their instances and executions.
SELECT number, execution, turn, events FROM history ORDER BY number, execution, turn
