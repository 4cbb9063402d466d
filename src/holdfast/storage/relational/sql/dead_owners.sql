-- A read: keys that are not ACTIVE and still have something in their name, because whoever moved it on came no further
-- than a batch (W8). In the indexes of what is owned alone. Each is then lost by a conditional update.
SELECT owner FROM (
    SELECT owner FROM instances WHERE owner IS NOT NULL
    UNION
    SELECT owner FROM attempts
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL
) AS holders
WHERE NOT EXISTS (SELECT 1 FROM workers WHERE key = owner AND state = 'ACTIVE')
