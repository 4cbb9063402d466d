-- Read inside the write transaction of the heartbeat that follows from it (W2).
SELECT {worker_columns} FROM workers WHERE key = ?
{row_lock}
