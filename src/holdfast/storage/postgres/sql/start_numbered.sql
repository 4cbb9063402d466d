-- As `start_instance`, under a number that was fetched before.
INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers)
VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING
