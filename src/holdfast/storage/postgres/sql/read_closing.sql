-- Read inside the write transaction. The lock serializes two workers that close the children of one execution.
SELECT how FROM closings WHERE number = ? AND execution = ?
FOR UPDATE
