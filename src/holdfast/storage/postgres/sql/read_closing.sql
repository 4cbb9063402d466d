-- A read, in the transaction that goes on with it: in which way the execution ended.
-- Locked: two who go through one family do it one after the other.
SELECT how FROM closings WHERE number = ? AND execution = ?
FOR UPDATE
