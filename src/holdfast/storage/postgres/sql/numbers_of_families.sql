-- A read, before they are locked: the members of families that may be deleted, by the index of children.
WITH RECURSIVE family(number) AS (
    SELECT named.number FROM unnest(?1::bigint[]) AS named(number)
    UNION ALL
    SELECT child.number FROM family JOIN instances AS child ON child.parent = family.number
)
SELECT number FROM family
