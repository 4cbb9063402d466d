-- In the transaction that ends an execution: if it leaves children behind, somebody has to go through them (C1).
INSERT INTO closings (number, execution, how)
SELECT ?1, ?2, ?3 WHERE EXISTS (
    SELECT 1 FROM instances
    WHERE parent = ?1 AND parent_execution = ?2 AND closed_at_ms IS NULL AND parent_close <> 'abandon'
)
ON CONFLICT (number, execution) DO NOTHING
