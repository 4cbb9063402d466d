-- Read inside the write transaction, so nothing changes between this look and what follows from it (G5).
SELECT state, execution, owner FROM instances WHERE number = ?
{row_lock}
