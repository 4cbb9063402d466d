-- A read: how much is in the name of each worker. In the indexes of what is owned alone.
SELECT owner, CAST(sum(attempts) AS BIGINT), CAST(sum(instances) AS BIGINT) FROM (
    SELECT owner, count(*) AS attempts, 0 AS instances FROM attempts
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL
    GROUP BY owner
    UNION ALL
    SELECT owner, 0, count(*) FROM instances WHERE owner IS NOT NULL GROUP BY owner
) AS counted
GROUP BY owner
