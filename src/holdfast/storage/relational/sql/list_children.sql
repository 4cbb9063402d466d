-- A read: the children of one instance, newest first, a page at a time.
SELECT {instance_columns},
    (SELECT value FROM kept WHERE kept.number = instances.number AND kept.key = ''),
    (SELECT id FROM instances AS above WHERE above.number = instances.parent)
FROM instances WHERE parent = ?5 AND number < ?1 AND (state = ?2 OR ?2 IS NULL) AND (workflow = ?3 OR ?3 IS NULL)
ORDER BY number DESC LIMIT ?4
