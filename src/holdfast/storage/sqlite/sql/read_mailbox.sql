-- Read inside the write transaction, so nothing changes between this look and what follows from it (G6).
SELECT waits, mail, event_policy, mailbox_limit FROM instances WHERE number = ?
