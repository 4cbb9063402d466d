-- A read: the payload and the error of one report; the error up to a length.
SELECT payload, left(error, ?2::int) FROM activity_events WHERE row = ?1
