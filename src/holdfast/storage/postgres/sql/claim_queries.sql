-- Two workers never get the same query: locked rows are skipped. A query about an instance of another live worker is
-- left to that one. An instance without a turn has no state to query yet (G11).
UPDATE questions SET taken_by = ?1
WHERE id = ANY (ARRAY(
    SELECT questions.id FROM questions JOIN instances ON instances.number = questions.number
    WHERE questions.taken_by IS NULL AND questions.expires_at_ms > ?2 AND instances.turn > 0
      AND (instances.owner = ?1
        OR (instances.owner IS NULL AND (instances.workflow, instances.version) IN (
            SELECT keys.workflow, keys.version FROM ({claim_keys:?3}) AS keys
        )))
    LIMIT ?4
    FOR UPDATE OF questions SKIP LOCKED
))
RETURNING id, number, name, input
