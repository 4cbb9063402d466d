-- What was written by transactions before this one is visible from now on.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text
