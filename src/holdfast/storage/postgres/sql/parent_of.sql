-- Read inside the write transaction that ends the child, so nothing changes between this look and the answer (G4, G5).
-- Locked: what follows from this look is true until the commit.
SELECT parent.number, child.parent_execution, child.parent_step, parent.state, parent.execution, parent.owner
FROM instances AS child JOIN instances AS parent ON parent.number = child.parent
WHERE child.number = ?
FOR NO KEY UPDATE OF parent
