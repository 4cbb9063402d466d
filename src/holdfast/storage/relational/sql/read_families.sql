-- Read inside the write transaction that deletes them: the families of roots, in the order of their numbers. A closed
-- instance starts no child, so a family whose members are all closed does not change. The value of the attribute is an
-- expression, so that it is looked up for each member: many families may be kept.
WITH RECURSIVE family(root, number) AS (
    SELECT named.number, named.number FROM instances AS named
    WHERE named.number IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT family.root, child.number FROM family JOIN instances AS child ON child.parent = family.number
)
SELECT family.root, member.number, member.id, member.workflow, member.state, member.closed_at_ms, member.parent,
    (SELECT above.id FROM instances AS above WHERE above.number = member.parent),
    EXISTS (
        SELECT 1 FROM attributes AS held
        WHERE held.number = member.number AND held.name = 'keep' AND held.position = 0 AND held.type = 'bool'
            AND (held.value || '') = ?2 LIMIT 1 OFFSET 0
    )
FROM family JOIN instances AS member ON member.number = family.number
ORDER BY member.number
