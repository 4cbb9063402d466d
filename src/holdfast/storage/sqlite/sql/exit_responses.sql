-- Leg 2 exit (L6) of the responses that a closing turn leaves unread: nothing of a closed instance is unapplied (A8).
UPDATE attempts SET ledger = ledger + 1 - 1000000000000
WHERE number = ? AND state IN ('COMPLETED', 'FAILED') AND ledger / 1000000000000 % 10 = 9
  AND ledger % 1000000000000 / 1000000 = ledger % 1000000 + 1
