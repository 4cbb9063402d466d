-- A read: ids of which not exactly one instance is current, or of which a newer one is not (G3).
SELECT id, sum(superseded_at_ms IS NULL), max(number) FROM instances GROUP BY id
HAVING sum(superseded_at_ms IS NULL) <> 1 OR max(number) <> max(CASE WHEN superseded_at_ms IS NULL THEN number END)
