-- A read: the reply to a query, if there is one.
SELECT answer FROM questions WHERE id = ? AND answer IS NOT NULL
