-- Read inside the write transaction: commits of a worker that is not ACTIVE are rejected (W6). The lock is shared
-- with heartbeats, which change no key; a group that ends the lease waits for this one, or comes before it.
SELECT 1 FROM workers WHERE key = ? AND state = 'ACTIVE'
FOR KEY SHARE
