-- A read: a key of this store, which never changes.
SELECT value FROM secrets WHERE name = ?
