-- In the transaction that stores the message: a later message with this id is a duplicate (G6).
INSERT INTO received (number, id) VALUES (?, ?)
