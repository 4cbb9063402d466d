-- A read: whether there are unclaimed queries, and whether a query or the rejection of an update has expired. Only
-- the first update to expire is read, from its index.
SELECT EXISTS (SELECT 1 FROM questions WHERE taken_by IS NULL AND expires_at_ms > ?1),
    EXISTS (SELECT 1 FROM questions WHERE expires_at_ms <= ?1)
    OR COALESCE((SELECT min(expires_at_ms) FROM updates WHERE expires_at_ms IS NOT NULL) <= ?1, false)
