-- The new states of many rows: ?1 is a JSON list of [row, state, refusal, cancel requested]. The list of the rows, which
-- repeats the join, lets every plan find them by their index.
UPDATE activity_events SET state = judged.value ->> 1, refusal = judged.value ->> 2,
    cancel_requested = CAST(judged.value ->> 3 AS BIGINT) <> 0,
    handled_at_ms = CASE WHEN judged.value ->> 1 IN ('NEW', 'WAITING') THEN NULL ELSE CAST(?2 AS BIGINT) END
FROM jsonb_array_elements(?1::jsonb) AS judged(value)
WHERE activity_events.row = CAST(judged.value ->> 0 AS BIGINT) AND activity_events.state IN ('NEW', 'WAITING')
    AND activity_events.row = ANY (ARRAY(
        SELECT CAST(each.value ->> 0 AS BIGINT) FROM jsonb_array_elements(?1::jsonb) AS each(value)
    ))
