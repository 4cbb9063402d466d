-- What is left of the inbox is the mailbox: it belongs to the next execution, in the transaction that creates it (G4).
UPDATE inbox SET execution = ? WHERE number = ?
