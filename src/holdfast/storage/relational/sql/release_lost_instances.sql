-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). If it is unknown
-- which of them the worker was running, the loss is counted for each, once: the next batch does not contain them
-- (G12).
UPDATE instances SET owner = NULL, claimable_at_ms = 0, losses = losses + ?3
WHERE number IN (SELECT number FROM instances WHERE owner = ?1 LIMIT ?2)
