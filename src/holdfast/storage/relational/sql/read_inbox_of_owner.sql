-- A read: the messages for instances that this worker owns.
SELECT inbox.row, inbox.number, inbox.execution, inbox.stamp_ms, inbox.event
FROM inbox JOIN instances ON instances.number = inbox.number
WHERE instances.owner = ? AND inbox.row > ? ORDER BY inbox.row
