-- A new exec id of 128 random bits, as in `insert_offer`: no executor knows it before it is offered or read (R2).
UPDATE offers SET exec_id = left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32)
WHERE exec_id = ? RETURNING exec_id
