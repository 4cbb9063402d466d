-- Read inside the write transaction: the executions of an instance and the first turn of each, up to the current one.
SELECT execution, events FROM history WHERE number = ? AND turn = 0 ORDER BY execution
