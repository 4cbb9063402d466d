-- Read inside the write transaction of the heartbeat that follows from it (W2).
SELECT key, state, token, deadline_ms, lease_ms, host, queues, build, registered_at_ms, slots FROM workers WHERE key = ?
