-- What was consumed is named by row id (G10), in the transaction of the turn that consumed it.
DELETE FROM inbox WHERE row = ? AND number = ?
