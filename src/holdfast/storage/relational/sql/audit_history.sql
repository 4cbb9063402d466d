-- A read: the turns of an instance, of every execution.
SELECT number, execution, turn, events FROM history WHERE number = ? ORDER BY execution, turn
