-- With the message itself: from here on another one of this id is the same.
INSERT INTO received (number, id) VALUES (?, ?)
