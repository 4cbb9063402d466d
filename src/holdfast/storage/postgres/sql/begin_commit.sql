-- As `insert_commit`, for a group that is sent in one round trip: no other part of it may be stored.
INSERT INTO commits (id, part, at_ms)
SELECT ?1::bigint, ?2::bigint, ?3::bigint WHERE NOT EXISTS (SELECT 1 FROM commits WHERE id = ?1::bigint AND NOT is_void)
ON CONFLICT (id, part) DO NOTHING
