-- Guarded by the fence. Parked: history and inbox stay, nobody claims it (G12). REQUESTED passes through RUNNING (A9).
UPDATE instances SET state = 'BLOCKED', blocked = ?, owner = NULL, claimable_at_ms = NULL
WHERE number = ? AND fence = ? AND owner = ? AND state IN ('REQUESTED', 'RUNNING')
