-- Part of a guarded turn: the names of the events that are awaited after it, and how many events it took.
UPDATE instances SET waits = COALESCE(?1, waits), mail = mail - ?2 WHERE number = ?3
