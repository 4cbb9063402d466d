-- A read: all messages, in the order of their instances.
SELECT number, execution, row, event FROM inbox ORDER BY number, row
