-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). Where nobody knows which of
-- them it was running, its loss is counted for each of them, once: the next batch does not meet them again (G12).
UPDATE instances SET owner = NULL, claimable_at_ms = 0, losses = losses + ?3
WHERE number IN (SELECT number FROM instances WHERE owner = ?1 LIMIT ?2)
