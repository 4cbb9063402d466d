-- Nothing waits for a closed instance; in the transaction that closes it.
DELETE FROM inbox WHERE number = ?
