-- A read.
SELECT {request_columns} FROM requests WHERE request_id = ?
