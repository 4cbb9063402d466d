-- A read: one definition.
SELECT definition FROM flows WHERE hash = ?
