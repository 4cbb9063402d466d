-- A read, inside one transaction with the others of the audit: every instance, oldest first.
SELECT number, id, workflow, state, execution, turn, fence, owner, claimable_at_ms, input, outcome, blocked, closed_at_ms
FROM instances ORDER BY number
