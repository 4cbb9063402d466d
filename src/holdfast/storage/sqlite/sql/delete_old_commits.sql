-- The outcome of such an old commit is no longer queried. Only the ids have an index, and they are random: the statement
-- scans a range of ids, whatever the age of the rows. Rows that were inserted after the range was read are young and stay.
DELETE FROM commits WHERE id > ?1 AND id <= ?2 AND at_ms < ?3
