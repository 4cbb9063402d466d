-- A key that is there already is refused by the primary key: a dead one is never revived (W5).
INSERT INTO workers (key, state, token, deadline_ms, lease_ms, host, queues, build, registered_at_ms, slots, workflows, activities, abandoned, versions)
VALUES (?, 'ACTIVE', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
