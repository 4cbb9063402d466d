-- Guarded by the fence. The next thing to do decides when anyone may claim it: a message at once, a timer when due (G2).
UPDATE instances SET owner = NULL, claimable_at_ms = CASE
    WHEN EXISTS (
        SELECT 1 FROM inbox WHERE inbox.number = instances.number
          AND (inbox.name IS NULL OR EXISTS (SELECT 1 FROM json_each(instances.waits) WHERE value = inbox.name))
    ) THEN 0
    ELSE (SELECT min(due_at_ms) FROM timers WHERE timers.number = instances.number AND timers.execution = instances.execution)
END
WHERE number = ? AND fence = ? AND owner = ?
