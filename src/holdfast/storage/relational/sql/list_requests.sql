-- A read: newest first, a page at a time. Of long texts the beginning is read: a client may write any.
SELECT row, substr(request_id, 1, 1024), substr(kind, 1, 64), substr(workflow, 1, 1024), substr(instance_id, 1, 1024),
    substr(event_name, 1, 1024), substr(input, 1, 4096), substr(policy, 1, 64), start_at_ms, deadline_after_ms, manual,
    substr(source, 1, 1024), inserted_at_ms, state, refusal, instance_number, handled_at_ms
FROM requests
WHERE row < ?1 AND (state = ?2 OR CAST(?2 AS TEXT) IS NULL) ORDER BY row DESC LIMIT ?3
