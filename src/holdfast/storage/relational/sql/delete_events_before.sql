-- Reports about the attempts of executions that are deleted (R34).
DELETE FROM activity_events WHERE activity_exec_id IN (SELECT exec_id FROM offers WHERE number = ? AND execution < ?)
