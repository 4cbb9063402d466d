-- A read: the input of one request.
SELECT input FROM requests WHERE row = ?
