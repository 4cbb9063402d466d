-- A read, before the locks: the instances that the loss of a worker concerns, a batch of those that it owns and of
-- those that wait for its attempts. Walks the index of owners row by row, whatever the planner's statistics: it
-- would otherwise sort all of them.
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
