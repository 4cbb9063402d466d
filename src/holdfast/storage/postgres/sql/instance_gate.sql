-- Read inside the write transaction, so nothing changes between this look and what follows from it (G5).
-- Locked: what follows from this look is true until the commit.
SELECT state, execution, owner FROM instances WHERE number = ?
FOR NO KEY UPDATE
