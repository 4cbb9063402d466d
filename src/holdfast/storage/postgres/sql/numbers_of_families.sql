-- A read, before they are locked: the members of families that may be deleted, by the index of children, one member after
-- the other whatever the planner's statistics.
WITH RECURSIVE family(number) AS (
    SELECT named.number FROM unnest(?1::bigint[]) AS named(number)
    UNION ALL
    SELECT child.number FROM family CROSS JOIN LATERAL (
        SELECT instances.number FROM instances WHERE instances.parent = family.number ORDER BY instances.number OFFSET 0
    ) AS child
)
SELECT number FROM family
