-- The offer of an attempt under which reports are accepted.
SELECT exec_id, entry FROM offers
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND withdrawn_at_ms IS NULL
ORDER BY entry DESC LIMIT 1
{row_lock}
