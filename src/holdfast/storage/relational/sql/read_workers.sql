-- A read: every worker that is known.
SELECT key, state, token, deadline_ms, lease_ms, host, queues, build, registered_at_ms, slots, workflows, activities, abandoned FROM workers ORDER BY registered_at_ms
