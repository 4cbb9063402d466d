-- The counter of AUTOINCREMENT. Changes no row before the first instance (R2).
UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'instances'
