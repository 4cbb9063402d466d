-- A read: the children of one instance, newest first, a page at a time.
SELECT number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms, losses,
    (SELECT value FROM kept WHERE kept.number = instances.number AND kept.key = ''),
    (SELECT id FROM instances AS above WHERE above.number = instances.parent)
FROM instances WHERE parent = ?5 AND number < ?1 AND (state = ?2 OR ?2 IS NULL) AND (workflow = ?3 OR ?3 IS NULL)
ORDER BY number DESC LIMIT ?4
