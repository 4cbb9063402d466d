-- Only the owner with the current fence advances the turn, and only from the turn it saw (G1, G9).
UPDATE instances SET turn = ?, stamp_ms = ?, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END
WHERE number = ? AND fence = ? AND owner = ? AND turn = ?
