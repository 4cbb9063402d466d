-- A read, before they are locked: the instances that the loss of a worker concerns, a batch of what it has and of those
-- that wait for what it runs. Step by step through the index of what is owned, whatever the planner knows: it would
-- rather sort all of it for each batch.
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
SELECT number FROM owned WHERE place > 0
UNION
(SELECT number FROM attempts WHERE owner = ?1 AND closed_at_ms IS NULL ORDER BY number, execution, activity, dimension, attempt LIMIT ?2::int)
