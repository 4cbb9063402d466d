-- Read inside the write transaction, so nothing changes between this look and what follows from it (G6, G7).
SELECT number, state, execution, waits, mail, event_policy, mailbox_limit FROM instances
WHERE id = ? AND superseded_at_ms IS NULL
{row_lock}
