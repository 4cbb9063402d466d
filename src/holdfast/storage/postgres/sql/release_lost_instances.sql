-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). Locked instances are
-- left for the next batch: the group that holds the worker's row waits for no instance. Rows are found as in
-- `numbers_of_owner`. If it is unknown which of them the worker was running, the loss is counted for each, once: the
-- next batch does not contain them (G12).
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
