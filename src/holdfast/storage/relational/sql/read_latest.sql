-- A read in one snapshot: an instance, its status, and the events of its last turn.
SELECT {instance_columns},
    (SELECT value FROM kept WHERE kept.number = instances.number AND kept.key = ''),
    NULL,
    (SELECT events FROM history WHERE history.number = instances.number AND history.execution = instances.execution
     ORDER BY history.turn DESC LIMIT 1)
FROM instances WHERE number = ?
