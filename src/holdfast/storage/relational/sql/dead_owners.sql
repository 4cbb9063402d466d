-- A read: keys of workers that are not ACTIVE and still own rows, because the worker that released them stopped
-- after a batch (W8). Uses the indexes of owners only. Each key is then lost by a guarded update.
SELECT owner FROM (
    SELECT owner FROM instances WHERE owner IS NOT NULL
    UNION
    SELECT owner FROM attempts
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL
) AS holders
WHERE NOT EXISTS (SELECT 1 FROM workers WHERE key = owner AND state = 'ACTIVE')
