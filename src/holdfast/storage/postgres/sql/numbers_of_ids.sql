-- A read, before they are locked: the instances that have these ids now, and their parents.
SELECT number, parent FROM instances WHERE id = ANY (?1::text[]) AND superseded_at_ms IS NULL
