-- Leg 2 exit of a response that had entered before; conditional on its digits (L13).
UPDATE attempts SET ledger = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND ledger = ?
