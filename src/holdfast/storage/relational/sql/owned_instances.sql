-- A read: the instances that a worker owns (W3).
SELECT number, fence FROM instances WHERE owner = ?
