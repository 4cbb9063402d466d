-- A read: payloads never change.
SELECT data FROM payloads WHERE number = ? AND reference = ?
