-- A batch of open instances gets fences that no turn of the lost time carries (R2, G1). Rows are locked in the order of
-- their numbers, as in every group.
UPDATE instances SET fence = fence + ?1::bigint
WHERE number = ANY (ARRAY(
    SELECT number FROM instances WHERE number > ?2 AND closed_at_ms IS NULL ORDER BY number LIMIT ?3
    FOR NO KEY UPDATE
))
RETURNING number
