-- A read: the instance that one step of an execution started.
-- Locked: what follows from this look is true until the commit.
SELECT number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms
FROM instances WHERE parent = ? AND parent_execution = ? AND parent_step = ?
FOR NO KEY UPDATE
