-- Read inside the write transaction: the current execution of an instance, which does not change before its end.
SELECT execution, closed_at_ms FROM instances WHERE number = ?
{row_lock}
