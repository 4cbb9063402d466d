-- The rows of an attempt that are not handled. A row that another worker has handled since it was read is not among them.
-- Each state is read in the order of its index, so that a million rows are not sorted for each commit.
SELECT row, state FROM (
    SELECT * FROM (
        SELECT row, state FROM activity_events WHERE activity_exec_id = ?1 AND state = 'NEW' ORDER BY row LIMIT ?2
    ) AS new
    UNION ALL SELECT * FROM (
        SELECT row, state FROM activity_events WHERE activity_exec_id = ?1 AND state = 'WAITING' ORDER BY row LIMIT ?2
    ) AS waiting
) AS found
ORDER BY row LIMIT ?2
