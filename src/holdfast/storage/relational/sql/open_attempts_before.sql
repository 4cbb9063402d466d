-- Read inside the write transaction: the first execution that has an attempt which has not ended.
SELECT min(execution) FROM attempts WHERE number = ? AND execution < ? AND closed_at_ms IS NULL
