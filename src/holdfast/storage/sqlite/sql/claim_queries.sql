-- One statement inside a write transaction: two workers never get the same query. A query about an instance of
-- another live worker is left to that one. An instance without a turn has no state to query yet (G11).
UPDATE questions SET taken_by = ?1
WHERE id IN (
    SELECT questions.id FROM questions JOIN instances ON instances.number = questions.number
    WHERE questions.taken_by IS NULL AND questions.expires_at_ms > ?2 AND instances.turn > 0
      AND (instances.owner = ?1
        OR (instances.owner IS NULL AND EXISTS (
            SELECT 1 FROM ({claim_keys:?3}) AS keys
            WHERE keys.workflow = instances.workflow AND keys.version = instances.version
        )))
    LIMIT ?4
)
RETURNING id, number, name, input
