-- The new states of many rows: ?1 is a JSON list of [row, state, refusal, cancel requested].
UPDATE activity_events SET state = json_extract(judged.value, '$[1]'), refusal = json_extract(judged.value, '$[2]'),
    cancel_requested = json_extract(judged.value, '$[3]'),
    handled_at_ms = CASE WHEN json_extract(judged.value, '$[1]') IN ('NEW', 'WAITING') THEN NULL ELSE ?2 END
FROM json_each(?1) AS judged
WHERE activity_events.row = json_extract(judged.value, '$[0]') AND activity_events.state IN ('NEW', 'WAITING')
