-- A read, in the transaction that closes more children: how the execution ended.
SELECT how FROM closings WHERE number = ? AND execution = ?
