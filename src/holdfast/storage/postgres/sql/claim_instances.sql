-- Two claimers never get the same row: one that is locked is passed over; each claim raises the fence (G1).
-- The first few of each workflow, by the index, and of those the first: neither a long queue nor other workflows' cost.
-- Of those that two owners in a row were lost with, one, and none while this owner has another: so that it is known
-- which of them it was if this owner is lost, too (G12).
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number = ANY ((ARRAY(
    SELECT number FROM instances
    WHERE losses >= 2 AND owner IS NULL AND ?2 >= claimable_at_ms AND workflow IN (SELECT value FROM json_each(?3))
      AND NOT EXISTS (SELECT 1 FROM instances AS tried WHERE tried.losses >= 2 AND tried.owner = ?1)
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) || ARRAY(
    SELECT candidate.number FROM json_each(?3) AS each(value) CROSS JOIN LATERAL (
        SELECT number, claimable_at_ms FROM instances
        WHERE workflow = each.value AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
        ORDER BY claimable_at_ms LIMIT ?4
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS candidate
    ORDER BY candidate.claimable_at_ms LIMIT ?4
))[1:?4])
RETURNING number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms, losses
