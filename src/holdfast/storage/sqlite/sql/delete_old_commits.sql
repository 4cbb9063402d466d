-- Nobody asks for the outcome of a commit that long ago. Ids are random, and only they have an index: a range of them is
-- gone through, however old those in it are. What was written since the range was read is young, and stays.
DELETE FROM commits WHERE id > ?1 AND id <= ?2 AND at_ms < ?3
