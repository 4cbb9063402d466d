-- Reports about the attempts of executions that are deleted (R34).
DELETE FROM activity_events
WHERE activity_exec_id = ANY (ARRAY(SELECT exec_id FROM offers WHERE number = ?1 AND execution < ?2))
