-- A read: every worker that is known, dead ones among them.
SELECT {raw_worker_columns}
FROM workers ORDER BY key
