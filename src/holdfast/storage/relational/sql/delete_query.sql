-- Its client has read the answer, or has stopped waiting.
DELETE FROM questions WHERE id = ?
