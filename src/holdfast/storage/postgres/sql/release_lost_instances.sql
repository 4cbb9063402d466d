-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). They were locked before
-- the worker was. What it has got since, and has a group on its way for, is left for the next batch: whoever has the
-- worker waits for no instance. They are found as in `numbers_of_owner`. Where nobody knows which of them it was running,
-- its loss is counted for each of them, once: the next batch does not meet them again (G12).
WITH RECURSIVE owned (number, place) AS (
    SELECT 0::bigint, 0
    UNION ALL
    SELECT (
        SELECT later.number FROM instances AS later
        WHERE (later.owner, later.number) > (?1::text, owned.number) AND later.owner <= ?1::text
        ORDER BY later.owner, later.number LIMIT 1
    ), owned.place + 1
    FROM owned WHERE owned.number IS NOT NULL AND owned.place < ?2::int
)
UPDATE instances SET owner = NULL, claimable_at_ms = 0, losses = losses + ?3
WHERE number = ANY (ARRAY(
    SELECT number FROM instances
    WHERE number = ANY (ARRAY(SELECT number FROM owned)) AND owner = ?1
    FOR NO KEY UPDATE SKIP LOCKED
))
