-- Guarded by the claimer; the first answer stays.
UPDATE questions SET answer = ?3 WHERE id = ?1 AND taken_by = ?2 AND answer IS NULL
