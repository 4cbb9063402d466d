-- A read by the owner of several instances: rows of committed turns never change. ?1 is a list of numbers and executions.
-- OFFSET keeps it one index lookup for each instance, whatever the planner knows of the table.
SELECT found.* FROM jsonb_array_elements(?1::jsonb) AS wanted(pair) CROSS JOIN LATERAL (
    SELECT number, turn, events FROM history
    WHERE number = (pair->>0)::bigint AND execution = (pair->>1)::bigint OFFSET 0
) AS found
ORDER BY number, turn
