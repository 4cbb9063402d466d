-- Leg 2 exit of a response that had entered before; conditional on its digits (L13), all but those that count exits:
-- pending responses of the same attempt may have left before it.
UPDATE attempts SET ledger = ledger + ?1 - ?7
WHERE number = ?2 AND execution = ?3 AND activity = ?4 AND dimension = ?5 AND attempt = ?6 AND ledger / 1000000 = ?7 / 1000000
