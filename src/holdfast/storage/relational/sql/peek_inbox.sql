-- A read by anybody: the rows stay.
SELECT {inbox_columns} FROM inbox WHERE number = ? ORDER BY row LIMIT ?
