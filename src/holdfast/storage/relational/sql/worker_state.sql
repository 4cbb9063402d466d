-- Read inside the write transaction: a dead worker's commits are refused (W6).
SELECT state FROM workers WHERE key = ?
