-- A read: the rows of one attempt that are NEW or WAITING, oldest first. A payload or error above ?2 bytes is not read
-- (null): a subquery would load it.
SELECT found.row, CAST(substr(CAST(event_id AS BLOB), 1, 1024) AS BLOB),
    CAST(substr(CAST(activity_exec_id AS BLOB), 1, 1024) AS BLOB),
    CASE WHEN octet_length(report.claim) <= ?3 THEN CAST(report.claim AS BLOB) END, octet_length(report.claim),
    CAST(substr(CAST(transition AS BLOB), 1, 64) AS BLOB), sequence,
    CASE WHEN octet_length(payload) <= ?2 THEN CAST(payload AS BLOB) END, octet_length(payload),
    CASE WHEN octet_length(error) <= ?2 THEN CAST(error AS BLOB) END, octet_length(error), inserted_at_ms,
    number, execution, activity, attempt, dimension, name, report.state
FROM (
    SELECT * FROM (
        SELECT row FROM activity_events WHERE activity_exec_id = ?1 AND state = 'NEW' ORDER BY row LIMIT ?4
    ) AS new
    UNION ALL SELECT * FROM (
        SELECT row FROM activity_events WHERE activity_exec_id = ?1 AND state = 'WAITING' ORDER BY row LIMIT ?4
    ) AS waiting
    ORDER BY row LIMIT ?4
) AS found CROSS JOIN activity_events AS report ON report.row = found.row
LEFT JOIN offers ON offers.exec_id = report.activity_exec_id
ORDER BY found.row
