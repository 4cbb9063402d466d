-- A read, before they are locked: the instances that the loss of a worker concerns, a batch of what it has and of those
-- that wait for what it runs.
(SELECT number FROM instances WHERE owner = ?1 ORDER BY number LIMIT ?2)
UNION
(SELECT number FROM attempts WHERE owner = ?1 AND closed_at_ms IS NULL ORDER BY number, execution, activity, dimension, attempt LIMIT ?2)
