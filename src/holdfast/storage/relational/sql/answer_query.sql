-- Guarded by the one who took it; the first answer stands.
UPDATE questions SET answer = ?3 WHERE id = ?1 AND taken_by = ?2 AND answer IS NULL
