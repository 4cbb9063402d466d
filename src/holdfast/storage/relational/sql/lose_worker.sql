-- Acts only on an ACTIVE worker, and at its deadline only if it was not renewed meanwhile (W6).
UPDATE workers SET state = 'INACTIVE' WHERE key = ?1 AND state = 'ACTIVE' AND deadline_ms <= ?2
