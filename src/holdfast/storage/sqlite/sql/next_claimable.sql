-- A read: when the next unowned instance, of whatever workflow, has something to do after the time given.
SELECT min(claimable_at_ms) FROM instances WHERE claimable_at_ms > ? AND owner IS NULL
