-- A read by any process: no row is consumed.
SELECT {inbox_columns} FROM inbox WHERE number = ? ORDER BY row LIMIT ?
