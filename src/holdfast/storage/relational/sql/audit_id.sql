-- A read: the id of the instance with this number.
SELECT id FROM instances WHERE number = ?
