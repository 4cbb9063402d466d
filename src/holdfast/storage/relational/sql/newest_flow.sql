-- A read: the version of a flow that was saved last. There are few flows.
SELECT definition FROM flows WHERE name = ? ORDER BY saved_at_ms DESC, hash LIMIT 1
