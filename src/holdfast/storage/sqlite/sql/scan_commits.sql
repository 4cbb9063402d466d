-- A read: the next so many commits by their ids, which are in no order of time: the last of them, the oldest, how many.
SELECT max(id), min(at_ms), count(*) FROM (SELECT id, at_ms FROM commits WHERE id > ?1 ORDER BY id LIMIT ?2)
