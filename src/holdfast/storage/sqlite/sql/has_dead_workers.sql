-- A read: whether a worker has been dead for so long that its key may be forgotten (W5).
SELECT 1 FROM workers WHERE state = 'INACTIVE' AND deadline_ms < ?1 LIMIT 1
