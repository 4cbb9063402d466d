-- Read inside the write transaction: whether these responses have entered before (L11). Only their owner adds any.
SELECT 1 FROM attempts
WHERE number = ?1 AND execution = ?2 AND activity = ?3 AND dimension = ?4 AND attempt = ?5
  AND owner = ?6 AND +state IN ('RUNNING', 'CANCELLED_RUNNING') AND ledger / 1000000 = ?7
