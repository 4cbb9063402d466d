-- A read: whether clients have inserted rows that no worker has handled yet (C2-C4). The order lets every plan use the
-- index of NEW rows.
SELECT (SELECT row FROM requests WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL
    OR (SELECT row FROM activity_events WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL
