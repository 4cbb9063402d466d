-- The reports of an offer follow it to its new exec id, in the transaction that renames the offer (R2).
UPDATE activity_events SET activity_exec_id = ? WHERE activity_exec_id = ?
