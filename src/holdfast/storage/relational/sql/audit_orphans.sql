-- A read: rows that hang on no instance (G1: numbers are never reused, so they can never find one).
SELECT 'history', number, count(*) FROM history WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'attempts', number, count(*) FROM attempts WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'inbox', number, count(*) FROM inbox WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'timers', number, count(*) FROM timers WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'payloads', number, count(*) FROM payloads WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'kept', number, count(*) FROM kept WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'updates', number, count(*) FROM updates WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'closings', number, count(*) FROM closings WHERE number NOT IN (SELECT number FROM instances) GROUP BY number
UNION ALL
SELECT 'children', parent, count(*) FROM instances WHERE parent NOT IN (SELECT number FROM instances) GROUP BY parent
