-- A read: whether one transaction of a group is on disk.
SELECT 1 FROM commits WHERE id = ? AND part = ? AND NOT is_void
