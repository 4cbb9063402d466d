-- A read: the next so many NEW rows behind row ?5, and whether this worker can handle each: it has the activity, or no
-- offer has the exec id.
SELECT page.row, CAST(substr(CAST(event_id AS BLOB), 1, 1024) AS BLOB),
    CAST(substr(CAST(activity_exec_id AS BLOB), 1, 1024) AS BLOB),
    CASE WHEN length(CAST(page.claim AS BLOB)) <= 1024 THEN CAST(page.claim AS BLOB) END,
    length(CAST(page.claim AS BLOB)),
    CAST(substr(CAST(transition AS BLOB), 1, 64) AS BLOB), sequence,
    CASE WHEN (name IS NULL OR name IN (SELECT value FROM json_each(?1))) AND length(CAST(payload AS BLOB)) <= ?2
        THEN CAST(payload AS BLOB) END,
    length(CAST(payload AS BLOB)),
    CAST(substr(CAST(error AS BLOB), 1, ?3) AS BLOB), inserted_at_ms,
    number, execution, activity, attempt, dimension, name,
    EXISTS (SELECT 1 FROM activity_events AS early
        WHERE early.activity_exec_id = page.activity_exec_id AND early.state = 'WAITING'),
    name IS NULL OR name IN (SELECT value FROM json_each(?1)) AS is_mine
FROM (
    SELECT * FROM activity_events INDEXED BY activity_events_new WHERE state = 'NEW' AND row > ?5 ORDER BY row LIMIT ?4
) AS page LEFT JOIN offers ON offers.exec_id = page.activity_exec_id
ORDER BY page.row
