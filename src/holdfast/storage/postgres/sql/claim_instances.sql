-- Two claimers never get the same row: one that is locked is passed over; each claim raises the fence (G1).
-- Workflows come in another order each time, so that none has to wait for ever behind another's long queue, and of each
-- those that are due longest, until there are enough. Rows are locked one by one as they are taken: nothing else is
-- locked or looked at, and neither a long queue nor other workflows' cost anything.
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
    SELECT taken.number FROM (
        SELECT each.value FROM json_each(?3) AS each(value)
        ORDER BY md5(each.value || ?1::text || ?2::bigint::text) OFFSET 0
    ) AS served CROSS JOIN LATERAL (
        SELECT number FROM instances
        WHERE workflow = served.value AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
        ORDER BY claimable_at_ms LIMIT ?4
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS taken
    LIMIT ?4
))[1:?4])
RETURNING number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms, losses
