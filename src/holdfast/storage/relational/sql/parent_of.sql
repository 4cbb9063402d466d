-- Read inside the write transaction that ends the child: the parent does not change before the answer is written
-- (G4, G5).
SELECT parent.number, child.parent_execution, child.parent_step, parent.state, parent.execution, parent.owner
FROM instances AS child JOIN instances AS parent ON parent.number = child.parent
WHERE child.number = ?
