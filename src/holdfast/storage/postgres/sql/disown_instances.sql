-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). They were locked before
-- the worker was. What it has got since, and has a group on its way for, is left for the next batch: whoever has the
-- worker waits for no instance. Where nobody knows which of them it was running, its loss is counted for each of them,
-- once: the next batch does not meet them again (G12).
UPDATE instances SET owner = NULL, claimable_at_ms = 0, losses = losses + ?3
WHERE number = ANY (ARRAY(
    SELECT number FROM instances WHERE owner = ?1 ORDER BY number LIMIT ?2 FOR NO KEY UPDATE SKIP LOCKED
))
