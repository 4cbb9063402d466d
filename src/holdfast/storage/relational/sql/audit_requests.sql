-- A read: requests whose columns of the engine contradict one another, or that were accepted for an instance that does
-- not exist. The columns of clients are not read: they may hold any bytes.
SELECT row, state, CASE WHEN refusal IS NULL THEN 0 ELSE 1 END, CASE WHEN handled_at_ms IS NULL THEN 0 ELSE 1 END, instance_number,
    (SELECT count(*) FROM instances WHERE instances.number = requests.instance_number)
FROM requests
WHERE state NOT IN ('NEW', 'ACCEPTED', 'REFUSED', 'TRACE')
    OR (state = 'NEW') <> (handled_at_ms IS NULL)
    OR (state = 'REFUSED') <> (refusal IS NOT NULL)
    OR (state = 'ACCEPTED' AND instance_number IS NULL)
    OR (instance_number IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM instances WHERE instances.number = requests.instance_number))
ORDER BY row
