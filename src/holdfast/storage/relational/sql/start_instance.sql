-- The unique id decides which transaction creates the instance; the others read the existing one (G3).
INSERT INTO instances (id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers)
VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING
RETURNING number
