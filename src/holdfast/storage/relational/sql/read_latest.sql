-- A read, of one moment: an instance, what its code says of itself, and the events of its last turn.
SELECT number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, outcome, blocked, created_at_ms, closed_at_ms, superseded_at_ms, losses,
    (SELECT value FROM kept WHERE kept.number = instances.number AND kept.key = ''),
    NULL,
    (SELECT events FROM history WHERE history.number = instances.number AND history.execution = instances.execution
     ORDER BY history.turn DESC LIMIT 1)
FROM instances WHERE number = ?
