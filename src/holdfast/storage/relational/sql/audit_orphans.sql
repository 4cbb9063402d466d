-- A read: rows of no instance (G1: numbers are never reused), in tables that are not read instance by instance.
SELECT 'payloads', number, count(*) FROM payloads WHERE NOT EXISTS (SELECT 1 FROM instances WHERE instances.number = payloads.number) GROUP BY number
UNION ALL
SELECT 'kept', number, count(*) FROM kept WHERE NOT EXISTS (SELECT 1 FROM instances WHERE instances.number = kept.number) GROUP BY number
UNION ALL
SELECT 'received', number, count(*) FROM received WHERE NOT EXISTS (SELECT 1 FROM instances WHERE instances.number = received.number) GROUP BY number
