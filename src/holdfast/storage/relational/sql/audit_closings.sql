-- A read: all executions whose children are still to be closed.
SELECT number, execution FROM closings ORDER BY number, execution
