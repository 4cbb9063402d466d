-- A read inside the transaction that closes the instance: is anything of it left that waits, or that is not applied?
SELECT EXISTS (SELECT 1 FROM inbox WHERE number = ?1)
    OR EXISTS (SELECT 1 FROM timers WHERE number = ?1)
    OR EXISTS (SELECT 1 FROM attempts WHERE number = ?1
        AND (closed_at_ms IS NULL OR ledger % 1000000000000 / 1000000 > ledger % 1000000))
