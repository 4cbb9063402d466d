-- An attempt is offered to executors: once for each entry into leg 1 (C4, L7). The id is 128 random bits: one UUID has
-- 122, so it is cut from the hash of two.
INSERT INTO offers (exec_id, number, execution, activity, dimension, attempt, entry, name)
VALUES (left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32), ?, ?, ?, ?, ?, ?, ?)
