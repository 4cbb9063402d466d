-- G12: any worker that has the code may claim the instance, also one of a build that blocked it. Guarded by the state.
UPDATE instances SET state = 'RUNNING', blocked = NULL, blocked_by = NULL, losses = 0, claimable_at_ms = 0
WHERE number = ? AND state = 'BLOCKED'
