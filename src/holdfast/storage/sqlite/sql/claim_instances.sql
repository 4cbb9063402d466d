-- One statement inside a write transaction: two claimers never get the same row; each claim raises the fence (G1).
-- A key is a workflow and a version that this worker has (R8). The first few of each key, by the index, and of those the
-- first: neither a long queue nor other keys cost.
-- Of those that two owners in a row were lost with, one, and none while this owner has another: so that it is known
-- which of them it was if this owner is lost, too (G12).
WITH keys AS MATERIALIZED (
    {claim_keys:?3}
)
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number IN (
    SELECT * FROM (
        SELECT number FROM instances INDEXED BY instances_suspected
        WHERE losses >= 2 AND owner IS NULL AND ?2 >= claimable_at_ms
          AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM keys)
          AND NOT EXISTS (SELECT 1 FROM instances AS tried WHERE tried.losses >= 2 AND tried.owner = ?1)
        LIMIT 1
    )
    UNION ALL SELECT * FROM (
        SELECT candidate.number FROM keys JOIN instances AS candidate ON candidate.number IN (
            SELECT number FROM instances
            WHERE workflow = keys.workflow AND version = keys.version AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
            ORDER BY claimable_at_ms LIMIT ?4
        )
        ORDER BY candidate.claimable_at_ms LIMIT ?4
    )
    LIMIT ?4
)
RETURNING {instance_columns}
