-- A read by anybody: the rows stay.
SELECT row, number, execution, stamp_ms, event FROM inbox WHERE number = ? ORDER BY row LIMIT ?
