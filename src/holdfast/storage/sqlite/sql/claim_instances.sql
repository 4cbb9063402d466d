-- One statement inside a write transaction: two claimers never get the same row; each claim raises the fence (G1).
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number IN (
    SELECT number FROM instances
    WHERE claimable_at_ms <= ?2 AND owner IS NULL AND workflow IN (SELECT value FROM json_each(?3))
    ORDER BY claimable_at_ms LIMIT ?4
)
RETURNING number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms
