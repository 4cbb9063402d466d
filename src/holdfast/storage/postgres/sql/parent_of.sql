-- Read inside the write transaction that ends the child. The lock keeps the parent unchanged until the commit (G4,
-- G5). The child is read before its parent: without statistics the planner would scan the index of all children.
SELECT parent.number, child.parent_execution, child.parent_step, parent.state, parent.execution, parent.owner
FROM (SELECT parent, parent_execution, parent_step FROM instances WHERE number = ? OFFSET 0) AS child
JOIN instances AS parent ON parent.number = child.parent
FOR NO KEY UPDATE OF parent
