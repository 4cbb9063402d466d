-- A read: the next so many NEW requests behind row ?4, and whether this worker can handle each. An input above ?2 bytes is
-- not read (null).
SELECT row, left(request_id, 1024), left(kind, 64), left(workflow, 1024), left(instance_id, 1024), left(event_name, 1024),
    CASE WHEN octet_length(input) <= ?2 THEN input END, octet_length(input)::bigint,
    left(policy, 64), start_at_ms, deadline_after_ms, manual, is_mine
FROM (
    SELECT *, workflow IS NULL OR kind <> 'start' OR manual OR octet_length(workflow) NOT BETWEEN 1 AND 255
        OR workflow = ANY (ARRAY(SELECT value FROM json_each(?1))) AS is_mine
    FROM requests WHERE state = 'NEW' AND row > ?4 ORDER BY row LIMIT ?3
) AS page
ORDER BY row
