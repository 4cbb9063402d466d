-- A read.
SELECT 1 FROM commits WHERE id = ?
