-- A read: payloads never change.
SELECT reference, data FROM payloads WHERE number = ?
