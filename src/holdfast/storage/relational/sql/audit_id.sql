-- A read: whose row another row is.
SELECT id FROM instances WHERE number = ?
