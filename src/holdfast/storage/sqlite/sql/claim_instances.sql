-- One statement inside a write transaction: two claimers never get the same row; each claim raises the fence (G1).
-- The first few of each workflow, by the index, and of those the first: neither a long queue nor other workflows' cost.
-- Of those that two owners in a row were lost with, one, and none while this owner has another: so that it is known
-- which of them it was if this owner is lost, too (G12).
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number IN (
    SELECT * FROM (
        SELECT number FROM instances INDEXED BY instances_suspected
        WHERE losses >= 2 AND owner IS NULL AND ?2 >= claimable_at_ms AND workflow IN (SELECT value FROM json_each(?3))
          AND NOT EXISTS (SELECT 1 FROM instances AS tried WHERE tried.losses >= 2 AND tried.owner = ?1)
        LIMIT 1
    )
    UNION ALL SELECT * FROM (
        SELECT candidate.number FROM json_each(?3) AS each JOIN instances AS candidate ON candidate.number IN (
            SELECT number FROM instances
            WHERE workflow = each.value AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
            ORDER BY claimable_at_ms LIMIT ?4
        )
        ORDER BY candidate.claimable_at_ms LIMIT ?4
    )
    LIMIT ?4
)
RETURNING {instance_columns}
