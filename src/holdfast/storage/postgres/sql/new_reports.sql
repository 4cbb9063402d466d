-- A read: the next so many NEW rows behind row ?5, and whether this worker can handle each: it has the activity, or no
-- offer has the exec id. A payload or error above ?2 bytes is not read (null).
SELECT page.row, left(event_id, 1024), left(activity_exec_id, 1024),
    CASE WHEN octet_length(page.claim) <= ?3 THEN page.claim END, octet_length(page.claim)::bigint,
    left(transition, 64), sequence,
    CASE WHEN octet_length(payload) <= ?2 THEN payload END, octet_length(payload)::bigint,
    CASE WHEN octet_length(error) <= ?2 THEN error END, octet_length(error)::bigint, inserted_at_ms,
    number, execution, activity, attempt, dimension, name, state,
    EXISTS (SELECT 1 FROM activity_events AS early
        WHERE early.activity_exec_id = page.activity_exec_id AND early.state = 'WAITING'),
    name IS NULL OR name = ANY (ARRAY(SELECT value FROM json_each(?1))) AS is_mine
FROM (
    SELECT * FROM activity_events WHERE state = 'NEW' AND row > ?5 ORDER BY row LIMIT ?4
) AS page LEFT JOIN offers ON offers.exec_id = page.activity_exec_id
ORDER BY page.row
