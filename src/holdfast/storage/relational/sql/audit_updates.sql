-- A read: all updates with their states and answers.
SELECT number, id, state, answer FROM updates ORDER BY number, id
