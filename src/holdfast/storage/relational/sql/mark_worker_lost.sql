-- Acts only on an ACTIVE worker, and at its deadline only if it was not renewed meanwhile (W6). The verdict on its loss is
-- stored with it, so that whoever goes on with what it had counts it in the same way.
UPDATE workers SET state = 'INACTIVE', loss = ?3 WHERE key = ?1 AND state = 'ACTIVE' AND deadline_ms <= ?2
