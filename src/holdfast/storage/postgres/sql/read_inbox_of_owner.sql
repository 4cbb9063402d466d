-- A read: whatever waits for instances that this worker holds, beyond the row given; and what was being written at the last
-- look (?3), which may have a lower number than what was seen then.
SELECT waiting.row, waiting.number, waiting.execution, waiting.stamp_ms, waiting.event
FROM (
    SELECT {inbox_columns} FROM inbox WHERE row > ?2
    UNION ALL
    SELECT {inbox_columns} FROM inbox WHERE row <= ?2 AND xid >= ?3::text::xid8
) AS waiting JOIN instances ON instances.number = waiting.number
WHERE instances.owner = ?1 ORDER BY waiting.row
