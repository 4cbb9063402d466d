-- The attempt was released: reports under this id are refused from now on, except notes.
UPDATE offers SET withdrawn_at_ms = ? WHERE exec_id = ?
