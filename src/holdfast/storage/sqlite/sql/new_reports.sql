-- A read: the next so many NEW rows behind row ?5, and whether this worker can handle each: it has the activity, or no
-- offer has the exec id. A payload or error above ?2 bytes is not read (null): a subquery would load it.
SELECT page.row, CAST(substr(CAST(event_id AS BLOB), 1, 1024) AS BLOB),
    CAST(substr(CAST(activity_exec_id AS BLOB), 1, 1024) AS BLOB),
    CASE WHEN octet_length(page.claim) <= ?3 THEN CAST(page.claim AS BLOB) END, octet_length(page.claim),
    CAST(substr(CAST(transition AS BLOB), 1, 64) AS BLOB), sequence,
    CASE WHEN octet_length(payload) <= ?2 THEN CAST(payload AS BLOB) END, octet_length(payload),
    CASE WHEN octet_length(error) <= ?2 THEN CAST(error AS BLOB) END, octet_length(error), inserted_at_ms,
    number, execution, activity, attempt, dimension, name, page.state,
    EXISTS (SELECT 1 FROM activity_events AS early
        WHERE early.activity_exec_id = page.activity_exec_id AND early.state = 'WAITING'),
    name IS NULL OR name IN (SELECT value FROM json_each(?1))
FROM activity_events AS page INDEXED BY activity_events_new
LEFT JOIN offers ON offers.exec_id = page.activity_exec_id
WHERE page.state = 'NEW' AND page.row > ?5 ORDER BY page.row LIMIT ?4
