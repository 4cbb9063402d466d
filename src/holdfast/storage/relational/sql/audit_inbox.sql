-- A read: what waits for an instance.
SELECT row, number, execution, event FROM inbox WHERE number = ? ORDER BY row
