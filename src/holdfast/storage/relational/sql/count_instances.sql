-- A read: the number of instances, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM instances LIMIT ?) AS found
