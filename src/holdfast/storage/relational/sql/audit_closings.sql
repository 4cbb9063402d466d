-- A read: the executions of an instance whose children still have to learn of its end.
SELECT execution FROM closings WHERE number = ?
