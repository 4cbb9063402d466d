-- One statement inside a write transaction: two claimers never get the same row; each claim raises the fence (G1).
-- The first few of each workflow, by the index, and of those the first: neither a long queue nor other workflows' cost.
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number IN (
    SELECT candidate.number FROM json_each(?3) AS each JOIN instances AS candidate ON candidate.number IN (
        SELECT number FROM instances
        WHERE workflow = each.value AND claimable_at_ms <= ?2 AND owner IS NULL
        ORDER BY claimable_at_ms LIMIT ?4
    )
    ORDER BY candidate.claimable_at_ms LIMIT ?4
)
RETURNING number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms, losses
