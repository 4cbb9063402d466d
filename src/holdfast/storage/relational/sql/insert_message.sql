-- A message from outside, with the name of an event (G6). Row ids only grow: they are the order of arrival (G10).
INSERT INTO inbox (number, execution, stamp_ms, event, name) VALUES (?, ?, ?, ?, ?)
