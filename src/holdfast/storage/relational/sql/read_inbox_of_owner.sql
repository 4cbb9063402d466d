-- A read: the messages of instances that this worker owns.
SELECT {inbox_columns:inbox}
FROM inbox JOIN instances ON instances.number = inbox.number
WHERE instances.owner = ? AND inbox.row > ? ORDER BY inbox.row
