-- Rows of executions that ended by continue-as-new and are kept no longer (R34).
DELETE FROM history WHERE number = ? AND execution < ?
