-- With the turn that set the message aside (G6): a message of this id is delivered again.
DELETE FROM received WHERE number = ? AND id = ?
