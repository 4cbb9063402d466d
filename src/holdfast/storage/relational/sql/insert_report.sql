-- A client's row. The id is unique, so concurrent inserts of one report leave one row.
INSERT INTO activity_events (
    event_id, activity_exec_id, claim, transition, sequence, payload, error, source, sent_at, inserted_at_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id) DO NOTHING
