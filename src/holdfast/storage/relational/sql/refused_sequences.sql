-- Sequences of one claim that were refused out of turn, because too many rows waited or because another claimant has the
-- attempt: the ones behind them do not wait.
SELECT sequence FROM activity_events
WHERE activity_exec_id = ? AND state = 'REFUSED' AND claim IS ? AND sequence > ?
ORDER BY sequence
