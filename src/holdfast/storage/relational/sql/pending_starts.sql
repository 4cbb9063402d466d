-- A read: of the ids ?1, those that no instance has, and for which a start is NEW that this worker cannot handle (it has
-- the workflows ?2); with the row of the oldest such start. All NEW requests are read, but only for an id without an
-- instance. Ids are looked up by scalar subqueries, which PostgreSQL does not turn into a join with all instances.
SELECT COALESCE(instance_id, request_id), min(row)
FROM (
    SELECT row, request_id, workflow, instance_id, kind, manual FROM requests WHERE state = 'NEW' ORDER BY row
) AS waiting
WHERE kind = 'start' AND manual = false AND octet_length(workflow) BETWEEN 1 AND 255
    AND workflow NOT IN (SELECT value FROM json_each(?2))
    AND COALESCE(instance_id, request_id) IN (SELECT value FROM json_each(?1))
    AND EXISTS (
        SELECT 1 FROM json_each(?1)
        WHERE (SELECT number FROM instances WHERE id = value AND superseded_at_ms IS NULL) IS NULL
    )
    AND (
        SELECT number FROM instances
        WHERE id = COALESCE(waiting.instance_id, waiting.request_id) AND superseded_at_ms IS NULL
    ) IS NULL
GROUP BY COALESCE(instance_id, request_id)
