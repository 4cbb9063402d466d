-- A read: messages for instances of this worker behind the row ?2, and messages of transactions that were open at
-- the last call (?3), whose row numbers may be lower.
SELECT {inbox_columns:waiting}
FROM (
    SELECT {inbox_columns} FROM inbox WHERE row > ?2
    UNION ALL
    SELECT {inbox_columns} FROM inbox WHERE row <= ?2 AND xid >= ?3::text::xid8
) AS waiting JOIN instances ON instances.number = waiting.number
WHERE instances.owner = ?1 ORDER BY waiting.row
