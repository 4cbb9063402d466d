-- A read that needs no ownership and consumes nothing.
SELECT {inbox_columns} FROM inbox WHERE number = ? ORDER BY row LIMIT ?
