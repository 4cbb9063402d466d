-- A read: rows of committed turns never change.
SELECT turn, events FROM history WHERE number = ? AND execution = ? ORDER BY turn
