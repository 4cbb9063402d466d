-- Part of a guarded turn.
INSERT INTO timers (number, execution, timer, due_at_ms) VALUES (?, ?, ?, ?)
