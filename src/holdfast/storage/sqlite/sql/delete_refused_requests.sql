-- Requests that were refused long ago. A batch.
DELETE FROM requests WHERE row IN (
    SELECT row FROM requests WHERE state = 'REFUSED' AND handled_at_ms < ?1 LIMIT ?2
)
