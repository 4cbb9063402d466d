-- A turn of a flow, with its key. Only the owner with the current fence advances it, from the turn it saw (G1, G9, K2).
UPDATE instances SET turn = ?, stamp_ms = ?, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END, collation_key = ?
WHERE number = ? AND fence = ? AND owner = ? AND turn = ?
