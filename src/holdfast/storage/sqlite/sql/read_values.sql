-- A read: the payload and the error of one report, as bytes; the error up to a length.
SELECT CAST(payload AS BLOB), CAST(substr(CAST(error AS BLOB), 1, ?2) AS BLOB) FROM activity_events WHERE row = ?1
