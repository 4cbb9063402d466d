-- Read inside the write transaction: the row does not change before the decision is written (G5).
SELECT state, execution, owner FROM instances WHERE number = ?
{row_lock}
