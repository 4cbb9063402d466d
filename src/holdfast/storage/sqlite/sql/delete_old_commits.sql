-- Ids of commits whose outcome no worker can still ask for. Ids are random and have the only index, so a range of ids
-- is scanned, whatever their age. Rows that were written after the range was read are new, and stay.
DELETE FROM commits WHERE id > ?1 AND id <= ?2 AND at_ms < ?3
