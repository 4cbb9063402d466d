-- A read: reports whose columns of the engine contradict one another. The columns of clients are not read: they may hold
-- any bytes.
SELECT row, state, CASE WHEN refusal IS NULL THEN 0 ELSE 1 END, CASE WHEN handled_at_ms IS NULL THEN 0 ELSE 1 END
FROM activity_events
WHERE state NOT IN ('NEW', 'APPLIED', 'WAITING', 'DUPLICATE', 'REFUSED')
    OR (state IN ('NEW', 'WAITING')) <> (handled_at_ms IS NULL)
    OR (state IN ('WAITING', 'DUPLICATE', 'REFUSED')) <> (refusal IS NOT NULL)
ORDER BY row
