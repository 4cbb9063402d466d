-- Its asker has the answer, or waits no more.
DELETE FROM questions WHERE id = ?
