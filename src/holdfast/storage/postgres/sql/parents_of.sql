-- A read, before they are locked: the parents of the instances named, which learn of their end.
SELECT parent FROM instances WHERE number = ANY (?1::bigint[]) AND parent IS NOT NULL
