-- A read, in the transaction that goes on with it: in which way the execution ended.
SELECT how FROM closings WHERE number = ? AND execution = ?
