-- Read inside the write transaction: those of the queues that have a READY attempt of one of these activities, the
-- one with the oldest attempt first. One index lookup for each.
SELECT found.queue FROM (
    SELECT each.value AS queue, (
        SELECT available_at_ms FROM attempts
        WHERE state = 'READY' AND queue = each.value AND available_at_ms <= ?2
          AND name IN (SELECT value FROM json_each(?3))
        ORDER BY available_at_ms LIMIT 1
    ) AS since_ms
    FROM json_each(?1) AS each
) AS found
WHERE found.since_ms IS NOT NULL
ORDER BY found.since_ms
