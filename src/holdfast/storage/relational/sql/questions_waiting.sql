-- A read: is there a question that nobody has taken, and does anything outlive its time?
SELECT EXISTS (SELECT 1 FROM questions WHERE taken_by IS NULL AND expires_at_ms > ?1),
    EXISTS (SELECT 1 FROM questions WHERE expires_at_ms <= ?1)
    OR EXISTS (SELECT 1 FROM updates WHERE expires_at_ms <= ?1)
