-- Retention (R39): tables from which much is deleted are vacuumed at a twentieth of dead rows instead of a fifth, so that
-- new rows use their space soon. It returns to the table, not to the file system.
-- oldest: 16

ALTER TABLE instances SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE history SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE attempts SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE payloads SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE attributes SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE received SET (autovacuum_vacuum_scale_factor = 0.05);
