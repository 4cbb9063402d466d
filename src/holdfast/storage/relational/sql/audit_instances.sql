-- A read, inside one transaction with the others of the audit: all instances, oldest first.
SELECT number, id, workflow, state, execution, turn, fence, owner, claimable_at_ms, input, outcome, blocked, closed_at_ms, superseded_at_ms, created_at_ms, deadline_at_ms, grace_ms, expires_at_ms, parent, collation_key
FROM instances ORDER BY number
