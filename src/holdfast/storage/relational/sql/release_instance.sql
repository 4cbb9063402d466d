-- An event is something to do if its name is waited for; an update, whose name is empty, unless the code winds up, which
-- is said by an empty name among those that it waits for: then it is for the next execution (G4).
-- Guarded by the fence. The next thing to do decides when anyone may claim it: a message at once, a timer when due (G2).
UPDATE instances SET owner = NULL, claimable_at_ms = CASE
    WHEN EXISTS (
        SELECT 1 FROM inbox WHERE inbox.number = instances.number
          AND (inbox.name IS NULL OR (inbox.name = '') <> EXISTS (SELECT 1 FROM json_each(instances.waits) WHERE value = inbox.name))
    ) THEN 0
    ELSE (SELECT min(due_at_ms) FROM timers WHERE timers.number = instances.number AND timers.execution = instances.execution)
END
WHERE number = ? AND fence = ? AND owner = ?
