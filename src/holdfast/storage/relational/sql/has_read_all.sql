-- Read inside the transaction that closes the instance: its owner has read every event and every update (G14).
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = ? AND row > ? AND name IS NOT NULL)
