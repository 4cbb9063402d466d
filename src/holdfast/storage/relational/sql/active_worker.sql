-- Read inside the write transaction: a dead worker's commits are refused (W6).
SELECT 1 FROM workers WHERE key = ? AND state = 'ACTIVE'
