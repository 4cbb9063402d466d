-- The first locks of a group that deletes families: in the order of their numbers, as in every group. They are read after
-- these locks, by a statement that sees the children which a turn has started meanwhile.
WITH RECURSIVE family(number) AS (
    SELECT named.number FROM unnest(?1::bigint[]) AS named(number)
    UNION ALL
    SELECT child.number FROM family CROSS JOIN LATERAL (
        SELECT instances.number FROM instances WHERE instances.parent = family.number ORDER BY instances.number OFFSET 0
    ) AS child
)
SELECT locked.number, locked.superseded_at_ms FROM instances AS locked
WHERE locked.number = ANY (ARRAY(SELECT number FROM family)) ORDER BY locked.number FOR NO KEY UPDATE
