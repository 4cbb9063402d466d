-- Read inside the write transaction: an instance that nobody else changes until its end.
-- Locked: what follows from this look is true until the commit.
SELECT number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms
FROM instances WHERE number = ?
FOR NO KEY UPDATE
