-- A batch of a lost worker's instances becomes claimable; the next claim raises the fence (W6). Locked in their order:
-- whoever has one of them for a moment is waited for.
UPDATE instances SET owner = NULL, claimable_at_ms = 0
WHERE number = ANY (ARRAY(SELECT number FROM instances WHERE owner = ?1 ORDER BY number LIMIT ?2 FOR NO KEY UPDATE))
