-- A read: keys of workers that are not ACTIVE and still own rows, because the worker that released them stopped
-- after a batch (W8). One index lookup for each owner, whatever the planner's statistics. Each key is then lost by a
-- guarded update.
WITH RECURSIVE owners (owner) AS (
    (SELECT owner FROM instances WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT later.owner FROM instances AS later WHERE later.owner > owners.owner ORDER BY later.owner LIMIT 1)
    FROM owners WHERE owners.owner IS NOT NULL
), executors (owner) AS (
    (SELECT owner FROM attempts WHERE owner IS NOT NULL AND closed_at_ms IS NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.owner FROM attempts AS later WHERE later.owner > executors.owner AND later.closed_at_ms IS NULL
        ORDER BY later.owner LIMIT 1
    )
    FROM executors WHERE executors.owner IS NOT NULL
)
SELECT owner FROM (SELECT owner FROM owners UNION SELECT owner FROM executors) AS holders
WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workers WHERE key = owner AND state = 'ACTIVE')
