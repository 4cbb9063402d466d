-- External attempts that were cancelled while they ran: their silence is judged again at this time (A5).
UPDATE attempts SET expires_at_ms = ?1
WHERE number = ?2 AND state = 'CANCELLED_RUNNING' AND owner IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > ?1)
