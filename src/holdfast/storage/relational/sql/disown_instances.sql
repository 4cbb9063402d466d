-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6).
UPDATE instances SET owner = NULL, claimable_at_ms = 0
WHERE number IN (SELECT number FROM instances WHERE owner = ? LIMIT ?)
