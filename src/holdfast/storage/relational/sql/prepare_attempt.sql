-- A claim of an attempt that is prepared first: conditional on READY and on the digits that were read in this
-- transaction (A2). The deadline of the queued attempt stays (A5).
UPDATE attempts SET state = 'PREPARING', ledger = ?, owner = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND state = 'READY' AND ledger = ?
