-- A read: the instances that had an id before.
SELECT count(*) FROM instances WHERE id = ? AND superseded_at_ms IS NOT NULL
