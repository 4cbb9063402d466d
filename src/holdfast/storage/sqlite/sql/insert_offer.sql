-- An attempt is offered to executors: once for each entry into leg 1 (C4, L7). The id is 128 random bits.
INSERT INTO offers (exec_id, number, execution, activity, dimension, attempt, entry, name)
VALUES (lower(hex(randomblob(16))), ?, ?, ?, ?, ?, ?, ?)
