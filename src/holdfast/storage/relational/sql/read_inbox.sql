-- A read by the owner: nobody else consumes these rows.
SELECT row, number, execution, stamp_ms, event FROM inbox WHERE number = ? ORDER BY row
