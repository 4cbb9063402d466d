-- Read inside the write transaction that ends the child, so nothing changes between this look and the answer (G4, G5).
-- Locked: what follows from this look is true until the commit. The child is found before its parent is looked for:
-- otherwise a planner that has not heard of any children yet looks through the index of all of them.
SELECT parent.number, child.parent_execution, child.parent_step, parent.state, parent.execution, parent.owner
FROM (SELECT parent, parent_execution, parent_step FROM instances WHERE number = ? OFFSET 0) AS child
JOIN instances AS parent ON parent.number = child.parent
FOR NO KEY UPDATE OF parent
