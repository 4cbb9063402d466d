-- A read of both ends of the primary key: there are at most so many instances.
SELECT COALESCE((SELECT max(number) FROM instances) - (SELECT min(number) FROM instances) + 1, 0)
