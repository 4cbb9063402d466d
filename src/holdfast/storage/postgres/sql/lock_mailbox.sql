-- Read inside the write transaction, so nothing changes between this look and what follows from it (G6, G7).
-- Locked: what follows from this look is true until the commit.
SELECT number, state, execution, waits, mail, event_policy, mailbox_limit FROM instances WHERE number = ?
FOR NO KEY UPDATE
