-- Read inside the write transaction: whether any worker may act.
SELECT 1 FROM workers WHERE state = 'ACTIVE' LIMIT 1
