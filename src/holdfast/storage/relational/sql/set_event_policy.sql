-- Part of the first turn: the code is known now, and with it its rules for events (G6).
UPDATE instances SET event_policy = ?, mailbox_limit = ? WHERE number = ?
