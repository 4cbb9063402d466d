-- In the transaction that ends an execution: records that it has children to close (C1).
INSERT INTO closings (number, execution, how)
SELECT ?1, ?2, ?3 WHERE EXISTS (
    SELECT 1 FROM instances
    WHERE parent = ?1 AND parent_execution = ?2 AND closed_at_ms IS NULL AND parent_close <> 'abandon'
)
ON CONFLICT (number, execution) DO NOTHING
