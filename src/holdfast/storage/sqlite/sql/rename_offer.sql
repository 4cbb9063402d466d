-- A new exec id of 128 random bits: no executor knows it before it is offered or read (R2).
UPDATE offers SET exec_id = lower(hex(randomblob(16))) WHERE exec_id = ? RETURNING exec_id
