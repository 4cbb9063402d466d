-- Acts only on an ACTIVE worker, and at its deadline only if the lease was not renewed in between (W6). The verdict
-- on its loss is stored, so that every worker that releases its rows counts the loss in the same way.
UPDATE workers SET state = 'INACTIVE', loss = ?3 WHERE key = ?1 AND state = 'ACTIVE' AND deadline_ms <= ?2
