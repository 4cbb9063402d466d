-- A read: the deadline of an instance.
SELECT deadline_at_ms, grace_ms, expires_at_ms FROM instances WHERE number = ? AND deadline_at_ms IS NOT NULL
