-- The counter of a store that never had an instance.
INSERT INTO sqlite_sequence (name, seq) VALUES ('instances', ?)
