-- A client's row. The id is unique, so concurrent inserts of one request leave one row.
INSERT INTO requests (
    request_id, kind, workflow, instance_id, event_name, input, policy, start_at_ms, deadline_after_ms, manual, source,
    inserted_at_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id) DO NOTHING
