-- Guarded by the fence. The next thing to do decides when any worker may claim it: a message at once, a timer when
-- it is due (G2). An event counts if its name is awaited. An update, whose name is empty, counts unless the code
-- winds up, for which the awaited names contain an empty one: then it is for the next execution (G4).
UPDATE instances SET owner = NULL, claimable_at_ms = CASE
    WHEN EXISTS (
        SELECT 1 FROM inbox WHERE inbox.number = instances.number
          AND (inbox.name IS NULL OR (inbox.name = '') <> EXISTS (SELECT 1 FROM json_each(instances.waits) WHERE value = inbox.name))
    ) THEN 0
    ELSE (SELECT min(due_at_ms) FROM timers WHERE timers.number = instances.number AND timers.execution = instances.execution)
END
WHERE number = ? AND fence = ? AND owner = ?
