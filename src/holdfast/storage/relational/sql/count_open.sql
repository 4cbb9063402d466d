-- A read: the open instances of each workflow and state, the largest numbers first (M2). The indexes of owned and of
-- unowned instances have every open one and no closed one. The plus keeps SQLite from reading an index of all instances
-- in the order of the groups.
SELECT workflow, state, CAST(sum(found) AS BIGINT) AS instances FROM (
    SELECT workflow, state, count(*) AS found FROM instances
    WHERE owner IS NOT NULL GROUP BY +workflow, +state
    UNION ALL
    SELECT workflow, state, count(*) AS found FROM instances
    WHERE owner IS NULL AND closed_at_ms IS NULL GROUP BY +workflow, +state
) AS counted
GROUP BY workflow, state ORDER BY instances DESC, workflow, state LIMIT ?
