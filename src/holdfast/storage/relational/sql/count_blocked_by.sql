-- A read: the number of BLOCKED instances that each build has blocked (G12).
SELECT value, count(*) FROM instances, json_each(blocked_by)
WHERE state = 'BLOCKED' GROUP BY value ORDER BY 2 DESC, 1 LIMIT ?
