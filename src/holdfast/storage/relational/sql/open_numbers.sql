-- A read: the open instances in the order of their numbers (R16). The indexes of owned and of unowned instances have
-- every open one and no closed one. The plus keeps a database from reading the table in the order of its numbers.
SELECT number FROM (
    SELECT number FROM instances WHERE owner IS NOT NULL
    UNION ALL
    SELECT number FROM instances WHERE owner IS NULL AND closed_at_ms IS NULL
) AS open WHERE +number > ? ORDER BY +number LIMIT ?
