-- A read by the owner: no other worker consumes these rows.
SELECT {inbox_columns} FROM inbox WHERE number = ? ORDER BY row
