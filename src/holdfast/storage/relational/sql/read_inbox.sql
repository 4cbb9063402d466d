-- A read by the owner: nobody else consumes these rows.
SELECT {inbox_columns} FROM inbox WHERE number = ? ORDER BY row
