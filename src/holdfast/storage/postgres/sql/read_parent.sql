-- A read: the parent of an instance. The child is read before its parent: without statistics the planner would scan
-- the index of all children.
SELECT parent.id, parent.number, child.parent_execution, child.parent_step
FROM (SELECT parent, parent_execution, parent_step FROM instances WHERE number = ? OFFSET 0) AS child
JOIN instances AS parent ON parent.number = child.parent
