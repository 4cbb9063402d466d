-- A read: the parent of an instance.
SELECT parent.id, parent.number, child.parent_execution, child.parent_step
FROM instances AS child JOIN instances AS parent ON parent.number = child.parent
WHERE child.number = ?
