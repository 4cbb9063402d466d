-- A consumed message is named by its row (G10), in the transaction of the turn that consumed it.
DELETE FROM inbox WHERE row = ? AND number = ?
