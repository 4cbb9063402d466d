-- Makes an unowned instance claimable at once; an owned one is woken by its owner (G5).
UPDATE instances SET claimable_at_ms = 0
WHERE number = ? AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED')
