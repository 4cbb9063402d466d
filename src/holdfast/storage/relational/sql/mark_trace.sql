-- In the transaction that inserted the row (C3), so that no worker handles it.
UPDATE requests SET state = 'TRACE', instance_number = ?2, handled_at_ms = ?3 WHERE request_id = ?1 AND state = 'NEW'
