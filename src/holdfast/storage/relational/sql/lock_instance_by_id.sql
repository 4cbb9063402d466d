-- Read inside the write transaction: the instance that has the id now, which nobody else changes until its end.
SELECT number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms
FROM instances WHERE id = ? AND superseded_at_ms IS NULL
