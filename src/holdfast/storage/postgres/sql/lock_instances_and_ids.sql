-- As `lock_instances`, also by ids; each part by its own index, whatever the planner knows of the table.
SELECT number FROM instances
WHERE number = ANY (?1::bigint[] || ARRAY(SELECT number FROM instances WHERE id = ANY (?2::text[]) AND superseded_at_ms IS NULL))
ORDER BY number FOR NO KEY UPDATE
