-- A read: whether clients have inserted rows that no worker has handled yet (C2-C4).
SELECT EXISTS (SELECT 1 FROM requests INDEXED BY requests_new WHERE state = 'NEW')
    OR EXISTS (SELECT 1 FROM activity_events INDEXED BY activity_events_new WHERE state = 'NEW')
