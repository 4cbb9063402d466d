-- A read: the input of one request, as bytes.
SELECT CAST(input AS BLOB) FROM requests WHERE row = ?
