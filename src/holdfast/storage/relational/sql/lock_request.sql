-- Two workers that read the same NEW row handle it once (C2).
SELECT 1 FROM requests WHERE row = ? AND state = 'NEW'
{row_lock}
