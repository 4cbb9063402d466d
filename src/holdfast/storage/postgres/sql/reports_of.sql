-- A read: the rows of one attempt that are NEW or WAITING, oldest first. A payload or error above ?2 bytes is not read
-- (null).
SELECT found.row, left(event_id, 1024), left(activity_exec_id, 1024),
    CASE WHEN octet_length(found.claim) <= ?3 THEN found.claim END, octet_length(found.claim)::bigint,
    left(transition, 64), sequence,
    CASE WHEN octet_length(payload) <= ?2 THEN payload END, octet_length(payload)::bigint,
    CASE WHEN octet_length(error) <= ?2 THEN error END, octet_length(error)::bigint, inserted_at_ms,
    number, execution, activity, attempt, dimension, name, state
FROM (
    SELECT * FROM (
        SELECT * FROM activity_events WHERE activity_exec_id = ?1 AND state = 'NEW' ORDER BY row LIMIT ?4
    ) AS new
    UNION ALL SELECT * FROM (
        SELECT * FROM activity_events WHERE activity_exec_id = ?1 AND state = 'WAITING' ORDER BY row LIMIT ?4
    ) AS waiting
) AS found LEFT JOIN offers ON offers.exec_id = found.activity_exec_id
ORDER BY found.row LIMIT ?4
