-- A read: when the next attempt of a queue and of one of these activities becomes available. In the index alone.
SELECT available_at_ms FROM attempts
WHERE state = 'READY' AND queue = ?1 AND available_at_ms > ?2 AND available_at_ms < 1152921504606846976 AND name IN (SELECT value FROM json_each(?3))
ORDER BY available_at_ms LIMIT 1
