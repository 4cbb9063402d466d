-- Two claimers never get the same row: locked rows are skipped. Each claim raises the fence (G1).
-- Of the suspects, which were lost with two owners in a row, one is claimed, and none while this owner has another: if this
-- owner is lost, too, the cause is known (G12).
-- A key is a workflow and a version that this worker has (R8). The candidates are found without locks: the instances that
-- are due longest, keys alternating at equal times. They are then locked and claimed; a candidate that another claimer has
-- locked is replaced by the next one of its key. So only claimed rows are locked, and the cost does not depend on the
-- length of a queue or on other keys.
WITH keys AS MATERIALIZED (
    {claim_keys:?3}
), suspect AS MATERIALIZED (
    SELECT number FROM instances
    WHERE losses >= 2 AND owner IS NULL AND ?2 >= claimable_at_ms
      AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM keys)
      AND NOT EXISTS (SELECT 1 FROM instances AS tried WHERE tried.losses >= 2 AND tried.owner = ?1)
    LIMIT LEAST(1, ?4::bigint)
    FOR NO KEY UPDATE SKIP LOCKED
), room AS MATERIALIZED (
    SELECT ?4::bigint - count(*) AS places FROM suspect
), due AS MATERIALIZED (
    SELECT keys.workflow, keys.version, waiting.number FROM keys CROSS JOIN LATERAL (
        SELECT number, claimable_at_ms, row_number() OVER (ORDER BY claimable_at_ms) AS place FROM instances
        WHERE workflow = keys.workflow AND version = keys.version AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
        ORDER BY claimable_at_ms LIMIT ?4
    ) AS waiting
    ORDER BY waiting.claimable_at_ms, waiting.place LIMIT (SELECT places FROM room)
), taken AS MATERIALIZED (
    SELECT number FROM instances
    WHERE number = ANY (ARRAY(SELECT number FROM due)) AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
    FOR NO KEY UPDATE SKIP LOCKED
), missing AS MATERIALIZED (
    SELECT due.workflow, due.version, count(*) AS share FROM due
    WHERE due.number NOT IN (SELECT number FROM taken) GROUP BY due.workflow, due.version
), further AS MATERIALIZED (
    SELECT later.number FROM missing CROSS JOIN LATERAL (
        SELECT number FROM instances
        WHERE workflow = missing.workflow AND version = missing.version AND claimable_at_ms <= ?2 AND owner IS NULL AND losses < 2
          AND number <> ALL (ARRAY(SELECT number FROM due))
        ORDER BY claimable_at_ms LIMIT missing.share
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS later
)
UPDATE instances SET owner = ?1, fence = fence + 1, claimable_at_ms = NULL
WHERE number = ANY (ARRAY(
    SELECT number FROM suspect UNION ALL SELECT number FROM taken UNION ALL SELECT number FROM further
))
RETURNING {instance_columns}
