-- A read: the answer to a question, if there is one.
SELECT answer FROM questions WHERE id = ? AND answer IS NOT NULL
