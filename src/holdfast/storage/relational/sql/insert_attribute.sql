-- Part of a guarded turn, or of the start that creates the instance: only its owner changes its attributes.
INSERT INTO attributes (number, name, position, type, value, created_at_ms)
VALUES (?1, ?2, ?3, ?4, ?5, (SELECT created_at_ms FROM instances WHERE number = ?1))
