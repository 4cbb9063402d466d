-- A read: ids of which not exactly one instance is current, or of which a newer one is not (G3).
SELECT id, count(*) FILTER (WHERE superseded_at_ms IS NULL), max(number) FROM instances GROUP BY id
HAVING count(*) FILTER (WHERE superseded_at_ms IS NULL) <> 1
    OR max(number) <> max(number) FILTER (WHERE superseded_at_ms IS NULL)
