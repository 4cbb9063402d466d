-- A read: the next so many offers by their ids, which are random: the last of them, how many, and how many of instances
-- that closed before ?3.
SELECT max(exec_id), count(*), COALESCE(sum(closed), 0) FROM (
    SELECT offers.exec_id, instances.closed_at_ms < ?3 AS closed
    FROM offers JOIN instances ON instances.number = offers.number
    WHERE offers.exec_id > ?1 ORDER BY offers.exec_id LIMIT ?2
)
