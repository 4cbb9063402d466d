-- Read inside the write transaction: a dead worker's commits are refused (W6).
-- Shared with heartbeats, which change no key; whoever ends the lease waits for this group, or comes before it.
SELECT 1 FROM workers WHERE key = ? AND state = 'ACTIVE'
FOR KEY SHARE
