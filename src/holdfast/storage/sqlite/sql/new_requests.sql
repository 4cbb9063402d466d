-- A read: the next so many NEW requests behind row ?4, and whether this worker can handle each. Texts are read as bytes,
-- because a client may write any; substr makes null of an empty one. An input above ?2 bytes is not read (null): a
-- subquery would load it.
SELECT row, CAST(substr(CAST(request_id AS BLOB), 1, 1024) AS BLOB), CAST(substr(CAST(kind AS BLOB), 1, 64) AS BLOB),
    iif(workflow = '', x'', CAST(substr(CAST(workflow AS BLOB), 1, 1024) AS BLOB)),
    iif(instance_id = '', x'', CAST(substr(CAST(instance_id AS BLOB), 1, 1024) AS BLOB)),
    CAST(substr(CAST(event_name AS BLOB), 1, 1024) AS BLOB),
    CASE WHEN octet_length(input) <= ?2 THEN CAST(input AS BLOB) END, octet_length(input),
    iif(policy = '', x'', CAST(substr(CAST(policy AS BLOB), 1, 64) AS BLOB)), start_at_ms, deadline_after_ms, manual,
    workflow IS NULL OR kind <> 'start' OR manual <> 0 OR octet_length(workflow) NOT BETWEEN 1 AND 255
        OR workflow IN (SELECT value FROM json_each(?1))
FROM requests INDEXED BY requests_new WHERE state = 'NEW' AND row > ?4 ORDER BY row LIMIT ?3
