-- A read: the newest notes about the attempts of an execution (A7), of all their offers.
SELECT offers.number, offers.execution, offers.activity, offers.attempt, offers.dimension,
    activity_events.payload, activity_events.source, activity_events.sent_at, activity_events.inserted_at_ms
FROM offers JOIN activity_events ON activity_events.activity_exec_id = offers.exec_id
WHERE offers.number = ? AND offers.execution = ?
  AND activity_events.transition = 'NOTE' AND activity_events.state = 'APPLIED'
ORDER BY activity_events.row DESC LIMIT ?
