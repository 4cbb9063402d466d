-- The primary key refuses a second row for the same turn (G9).
INSERT INTO history (number, execution, turn, events) VALUES (?, ?, ?, ?)
