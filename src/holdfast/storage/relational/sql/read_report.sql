-- A read: the answer to a report.
SELECT state, refusal, cancel_requested, handled_at_ms FROM activity_events WHERE event_id = ?
