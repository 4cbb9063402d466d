-- Leg 2 exit of pending responses (L5), whatever the state of the attempt is; never more than have entered (L14).
UPDATE attempts SET ledger = ledger + ?1
WHERE number = ?2 AND execution = ?3 AND activity = ?4 AND dimension = ?5 AND attempt = ?6
  AND ledger % 1000000000000 / 1000000 - ledger % 1000000 >= ?1
