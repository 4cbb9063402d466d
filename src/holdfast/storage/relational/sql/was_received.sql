-- Whether a message of this id was taken before (G6).
SELECT 1 FROM received WHERE number = ? AND id = ?
