-- A read: the READY attempts of each queue that no pause withholds, from their index, and the running ones, which are never many. Those of
-- executors outside of workers have no owner, and always a deadline (C4).
SELECT queue, CAST(sum(ready) AS BIGINT), CAST(sum(later) AS BIGINT), CAST(sum(running) AS BIGINT), min(oldest_at_ms)
FROM (
    SELECT queue, count(*) FILTER (WHERE available_at_ms <= ?1) AS ready,
        count(*) FILTER (WHERE available_at_ms > ?1) AS later, 0 AS running,
        min(available_at_ms) FILTER (WHERE available_at_ms <= ?1) AS oldest_at_ms
    FROM attempts WHERE state = 'READY' AND available_at_ms < 1152921504606846976 GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, count(*), NULL FROM attempts
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, count(*), NULL FROM attempts
    WHERE expires_at_ms IS NOT NULL AND owner IS NULL AND state <> 'READY' AND closed_at_ms IS NULL
    GROUP BY queue
) AS counted
GROUP BY queue
