-- A read.
SELECT 1 FROM commits WHERE id = ? AND NOT is_void LIMIT 1
