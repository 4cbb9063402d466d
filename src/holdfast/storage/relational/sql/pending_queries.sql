-- A read: is there a question that nobody has taken, and does anything outlive its time? Of updates only the first to
-- expire is looked at, by its index: there is one for every update that was ever made.
SELECT EXISTS (SELECT 1 FROM questions WHERE taken_by IS NULL AND expires_at_ms > ?1),
    EXISTS (SELECT 1 FROM questions WHERE expires_at_ms <= ?1)
    OR COALESCE((SELECT min(expires_at_ms) FROM updates WHERE expires_at_ms IS NOT NULL) <= ?1, false)
