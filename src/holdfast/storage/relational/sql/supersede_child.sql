-- A closed child of an earlier instance of the same parent id is superseded (G3), in the transaction that creates
-- the new one.
UPDATE instances SET superseded_at_ms = ?1
WHERE id = ?2 AND superseded_at_ms IS NULL AND closed_at_ms IS NOT NULL AND parent IS NOT NULL AND parent <> ?3
  AND (SELECT id FROM instances AS theirs WHERE theirs.number = instances.parent)
    = (SELECT id FROM instances AS ours WHERE ours.number = ?3)
