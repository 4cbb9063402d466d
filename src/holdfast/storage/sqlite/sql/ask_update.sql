-- Part of a delivery that was judged in this transaction. One that was rejected before is asked anew.
INSERT INTO updates (number, id, state) VALUES (?1, ?2, 'asked')
ON CONFLICT (number, id) DO UPDATE SET state = 'asked', answer = NULL, expires_at_ms = NULL
