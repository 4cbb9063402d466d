-- A read: when the next unowned instance of these workflows has something to do.
SELECT min(claimable_at_ms) FROM instances WHERE claimable_at_ms > ? AND owner IS NULL
