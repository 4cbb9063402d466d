-- A read: how many updates of an instance have no answer yet, as far as the limit.
SELECT count(*) FROM (SELECT 1 FROM updates WHERE number = ?1 AND answer IS NULL LIMIT ?2) AS found
