-- A read: who started an instance. It is found before its parent is looked for: otherwise a planner that has not heard of
-- any children yet looks through the index of all of them.
SELECT parent.id, parent.number, child.parent_execution, child.parent_step
FROM (SELECT parent, parent_execution, parent_step FROM instances WHERE number = ? OFFSET 0) AS child
JOIN instances AS parent ON parent.number = child.parent
