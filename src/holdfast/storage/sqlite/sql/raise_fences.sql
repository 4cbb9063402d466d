-- A batch of open instances gets fences that no turn of the lost time carries (R2, G1).
UPDATE instances SET fence = fence + ?1
WHERE number IN (SELECT number FROM instances WHERE number > ?2 AND closed_at_ms IS NULL ORDER BY number LIMIT ?3)
RETURNING number
