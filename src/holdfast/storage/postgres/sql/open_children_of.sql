-- A read, before they are locked: the open children of instances that may end with this group.
SELECT number FROM instances WHERE parent = ANY (?1::bigint[]) AND closed_at_ms IS NULL LIMIT ?2
