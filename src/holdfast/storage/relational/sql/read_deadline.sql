-- A read: until when an instance has to end, or had to.
SELECT deadline_at_ms, grace_ms, expires_at_ms FROM instances WHERE number = ? AND deadline_at_ms IS NOT NULL
