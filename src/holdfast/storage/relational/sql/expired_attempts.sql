-- A read; each is then ended by a conditional update (A5, C5).
SELECT {attempt_columns},
    (SELECT id FROM instances WHERE instances.number = attempts.number),
    (SELECT workflow FROM instances WHERE instances.number = attempts.number)
FROM attempts
WHERE expires_at_ms <= ?
ORDER BY expires_at_ms LIMIT ?
