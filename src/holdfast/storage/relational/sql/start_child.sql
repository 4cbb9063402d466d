-- The unique id decides: a child whose id is taken is not created, and its parent gets the refusal (G3, G11).
INSERT INTO instances (id, workflow, version, state, execution, turn, fence, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, parent, parent_execution, parent_step, parent_close)
VALUES (?1, ?2, ?3, 'REQUESTED', 1, 0, 0, 0, ?4, ?5, ?6, ?4, ?7, ?8, ?9, ?10)
ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING
RETURNING number
