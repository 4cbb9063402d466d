-- Conditional on the token that was judged in this transaction (W3).
UPDATE workers SET token = ?, deadline_ms = ?, lease_ms = ?, abandoned = ? WHERE key = ? AND state = 'ACTIVE' AND token = ?
