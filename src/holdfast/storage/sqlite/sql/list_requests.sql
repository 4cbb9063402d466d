-- A read: newest first, a page at a time. Texts are read as bytes, because a client may write any, and of long ones the
-- beginning.
SELECT row, CAST(substr(CAST(request_id AS BLOB), 1, 1024) AS BLOB), CAST(substr(CAST(kind AS BLOB), 1, 64) AS BLOB),
    CAST(substr(CAST(workflow AS BLOB), 1, 1024) AS BLOB), CAST(substr(CAST(instance_id AS BLOB), 1, 1024) AS BLOB),
    CAST(substr(CAST(event_name AS BLOB), 1, 1024) AS BLOB), CAST(substr(CAST(input AS BLOB), 1, 4096) AS BLOB),
    CAST(substr(CAST(policy AS BLOB), 1, 64) AS BLOB), start_at_ms, deadline_after_ms, manual,
    CAST(substr(CAST(source AS BLOB), 1, 1024) AS BLOB), inserted_at_ms, state, refusal, instance_number, handled_at_ms
FROM requests
WHERE row < ?1 AND (state = ?2 OR ?2 IS NULL) ORDER BY row DESC LIMIT ?3
