-- A read at the end of a transaction that has changed these instances, and so holds their rows: no watcher is missed.
SELECT number, workflow, owner, claimable_at_ms, closed_at_ms IS NOT NULL OR state = 'BLOCKED', watchers FROM instances
WHERE number IN (SELECT value FROM json_each(?1)) AND (watchers IS NOT NULL OR owner IS NOT NULL OR claimable_at_ms IS NOT NULL)
