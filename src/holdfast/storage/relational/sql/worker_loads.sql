-- A read: the number of open rows of each worker. Uses the indexes of owners only.
SELECT owner, CAST(sum(attempts) AS BIGINT), CAST(sum(instances) AS BIGINT) FROM (
    SELECT owner, count(*) AS attempts, 0 AS instances FROM attempts
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL
    GROUP BY owner
    UNION ALL
    SELECT owner, 0, count(*) FROM instances WHERE owner IS NOT NULL GROUP BY owner
) AS counted
GROUP BY owner
