-- A read: the starts that no worker has handled, by workflow, from the index of NEW rows.
SELECT substr(workflow, 1, 1024), count(*) FROM requests
WHERE state = 'NEW' AND kind = 'start' AND workflow IS NOT NULL AND manual = false
GROUP BY workflow ORDER BY workflow LIMIT ?
