-- A read: the open instances of each workflow, version and owner (R9). The indexes of owned and of unowned instances have
-- every open one and no closed one. The plus keeps SQLite from reading an index of all instances in the order of the groups.
SELECT workflow, version, owner, count(*) AS instances FROM instances
WHERE owner IS NOT NULL GROUP BY +workflow, +version, +owner
UNION ALL
SELECT workflow, version, NULL, count(*) FROM instances
WHERE owner IS NULL AND closed_at_ms IS NULL GROUP BY +workflow, +version
ORDER BY 4 DESC LIMIT ?
