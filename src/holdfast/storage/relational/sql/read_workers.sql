-- A read: every worker that is known.
SELECT {worker_columns} FROM workers ORDER BY registered_at_ms
