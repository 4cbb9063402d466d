-- A read: how many instances have ended, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM instances WHERE closed_at_ms IS NOT NULL LIMIT ?) AS closed
