-- A read: whether a report about an offer waits to be handled. It is handled before the claim is released (A5).
SELECT 1 FROM activity_events WHERE activity_exec_id = ? AND state = 'NEW' LIMIT 1
