-- A read: whatever waits for instances that this worker holds.
SELECT inbox.row, inbox.number, inbox.execution, inbox.stamp_ms, inbox.event
FROM inbox JOIN instances ON instances.number = inbox.number
WHERE instances.owner = ? AND inbox.row > ? ORDER BY inbox.row
