-- Leg 2 exit (L5, L6) of the responses that a closing turn leaves unread: nothing of a closed instance is unapplied (A8).
-- The last one of an attempt that ended its activity is final; an attempt that another one follows had pending ones only.
UPDATE attempts SET ledger = ledger + ledger % 1000000000000 / 1000000 - ledger % 1000000
    - CASE WHEN state IN ('COMPLETED', 'FAILED') AND ledger / 1000000000000 % 10 = 9 AND NOT EXISTS (
        SELECT 1 FROM attempts AS later WHERE later.number = attempts.number AND later.execution = attempts.execution
          AND later.activity = attempts.activity AND later.dimension = attempts.dimension
          AND later.attempt = attempts.attempt + 1)
      THEN 1000000000000 ELSE 0 END
WHERE number = ? AND ledger % 1000000000000 / 1000000 > ledger % 1000000
