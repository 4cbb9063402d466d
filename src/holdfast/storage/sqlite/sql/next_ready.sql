-- A read: when the next attempt of a queue becomes available.
SELECT min(available_at_ms) FROM attempts WHERE state = 'READY' AND queue = ? AND available_at_ms > ?
