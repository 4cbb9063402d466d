-- In the transaction that creates the new instance, which the unique index on current ids would refuse otherwise
-- (G3).
UPDATE instances SET superseded_at_ms = ? WHERE number = ? AND superseded_at_ms IS NULL
