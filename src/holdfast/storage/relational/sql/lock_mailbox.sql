-- Read inside the write transaction: the row does not change before the decision is written (G6, G7).
SELECT number, state, execution, waits, mail, event_policy, mailbox_limit FROM instances WHERE number = ?
{row_lock}
