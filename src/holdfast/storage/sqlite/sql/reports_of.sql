-- A read: the rows of one attempt that are NEW or WAITING, oldest first.
SELECT found.row, CAST(substr(CAST(event_id AS BLOB), 1, 1024) AS BLOB),
    CAST(substr(CAST(activity_exec_id AS BLOB), 1, 1024) AS BLOB),
    CASE WHEN length(CAST(found.claim AS BLOB)) <= 1024 THEN CAST(found.claim AS BLOB) END,
    length(CAST(found.claim AS BLOB)),
    CAST(substr(CAST(transition AS BLOB), 1, 64) AS BLOB), sequence,
    CASE WHEN length(CAST(payload AS BLOB)) <= ?2 THEN CAST(payload AS BLOB) END, length(CAST(payload AS BLOB)),
    CAST(substr(CAST(error AS BLOB), 1, ?3) AS BLOB), inserted_at_ms,
    number, execution, activity, attempt, dimension, name
FROM (
    SELECT * FROM (
        SELECT * FROM activity_events WHERE activity_exec_id = ?1 AND state = 'NEW' ORDER BY row LIMIT ?4
    ) AS new
    UNION ALL SELECT * FROM (
        SELECT * FROM activity_events WHERE activity_exec_id = ?1 AND state = 'WAITING' ORDER BY row LIMIT ?4
    ) AS waiting
) AS found LEFT JOIN offers ON offers.exec_id = found.activity_exec_id
ORDER BY found.row LIMIT ?4
