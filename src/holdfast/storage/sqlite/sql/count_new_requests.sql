-- A read: the starts that no worker has handled, by workflow, from the index of NEW rows. Names are read as bytes.
SELECT CAST(substr(CAST(workflow AS BLOB), 1, 1024) AS BLOB), count(*) FROM requests
WHERE state = 'NEW' AND kind = 'start' AND workflow IS NOT NULL AND manual = 0
GROUP BY workflow ORDER BY workflow LIMIT ?
