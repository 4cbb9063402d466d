-- A read: which instances are in a worker's name (W3).
SELECT number, fence FROM instances WHERE owner = ?
