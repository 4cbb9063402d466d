-- The first locks of a group: other groups that name these instances wait, and all lock them in the same order.
SELECT number, superseded_at_ms FROM instances WHERE number = ANY (?1::bigint[]) ORDER BY number FOR NO KEY UPDATE
