-- Part of a guarded turn, of the start that creates the instance, or of a change by a client: each has locked its row.
INSERT INTO attributes (number, name, position, type, value, created_at_ms)
VALUES (?1, ?2, ?3, ?4, ?5, (SELECT created_at_ms FROM instances WHERE number = ?1))
