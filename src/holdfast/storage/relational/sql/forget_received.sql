-- In the commit of the turn that set the message aside (G6): a message with this id is delivered again.
DELETE FROM received WHERE number = ? AND id = ?
